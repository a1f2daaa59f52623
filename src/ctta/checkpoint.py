"""An adapter in one safetensors file: tensors as they are, everything else as JSON in its header."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import CheckpointError, MethodMismatch, NotACheckpoint, SourceMismatch
from ctta.files import write_atomically
from ctta.registry import method
from ctta.version import __version__

_FORMAT = 1
_KEY = "ctta"
_KEYS = {"method", "settings", "source", "dtype", "extra"}
_EXTRA = "_extra_state"
_PLAIN = (bool, int, float, str, type(None))

AnyAdapter = TypeVar("AnyAdapter", bound=Adapter)


def save(adapter: Adapter, path: str | os.PathLike[str]) -> None:
    """Write an adapter's whole state, atomically."""
    state = adapter.state_dict()
    tensors: dict[str, Tensor] = {}
    extra = _take_tensors(state.pop(_EXTRA), _EXTRA, tensors)
    header = {
        "format": _FORMAT,
        "method": type(adapter).__name__.lower(),
        "settings": _describe(adapter),
        "source": adapter.source_digest,
        "steps": adapter.steps,
        "dtype": str(_dtype(adapter)).removeprefix("torch."),
        "versions": {"ctta": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "extra": extra,
    }
    tensors |= {name: value for name, value in state.items() if isinstance(value, Tensor)}
    data = serialise({name: value.contiguous() for name, value in tensors.items()}, metadata={_KEY: json.dumps(header)})
    write_atomically(path, data)


def load(
    path: str | os.PathLike[str], model: nn.Module, cls: type[AnyAdapter], overrides: Mapping[str, Any]
) -> AnyAdapter:
    """Rebuild a saved adapter around its source model."""
    header, tensors = _read(Path(path))
    saved: type[Adapter] = cls if header["method"] == cls.__name__.lower() else method(header["method"])
    if not issubclass(saved, cls):
        raise MethodMismatch(
            f"{path} holds the state of {saved.__name__}, not of {cls.__name__}. "
            f"Use {saved.__name__}.load or Adapter.load."
        )
    source = model if isinstance(model, Classifier) else Classifier(model)
    if (digest := source.digest()) != header["source"]:
        raise SourceMismatch(
            f"This checkpoint was adapted from weights {header['source'][:12]}..., not from {digest[:12]}... "
            "Load the source weights it started from (and the same mean and std) before Adapter.load."
        )
    adapter = saved(source, **_arguments(header["settings"], overrides, path))
    if (dtype := getattr(torch, header["dtype"])) != _dtype(adapter):
        adapter.to(dtype)
    state: dict[str, Any] = {name: value for name, value in tensors.items() if not name.startswith(_EXTRA)}
    state[_EXTRA] = _put_tensors(header["extra"], tensors)
    adapter.load_state_dict(state)
    return adapter


def _dtype(adapter: Adapter) -> torch.dtype:
    return next((p.dtype for p in adapter.parameters()), torch.float32)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except FileNotFoundError:
        raise NotACheckpoint(f"There is no checkpoint at {path}.") from None
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size if path.exists() else 0
        raise NotACheckpoint(
            f"{path} ({size} bytes) is not a whole safetensors file ({error}). Restore it from a copy."
        ) from error
    try:
        header = json.loads(metadata[_KEY])
    except (KeyError, ValueError):
        raise NotACheckpoint(
            f"{path} is a safetensors file that ctta did not write: it has no {_KEY!r} header."
        ) from None
    form = header.get("format") if isinstance(header, dict) else None
    if form != _FORMAT or not set(header) >= _KEYS:
        raise NotACheckpoint(f"{path} has format {form}; this version of ctta ({__version__}) reads {_FORMAT}.")
    return header, tensors


def _describe(adapter: Adapter) -> dict[str, Any]:
    """Settings as JSON: plain values as they are, what a checkpoint cannot carry by its type."""
    defaults = adapter.arguments()
    described: dict[str, Any] = {}
    for name, value in adapter.settings.items():
        if isinstance(value, _PLAIN):
            described[name] = value
        elif value is not defaults[name] and not isinstance(value, Tensor):
            # A tensor given at the start (prototypes) lives on as state; a function or module does not.
            described[name] = {"custom": getattr(value, "__qualname__", type(value).__qualname__)}
    return described


def _arguments(settings: dict[str, Any], overrides: Mapping[str, Any], path: object) -> dict[str, Any]:
    missing = {name: v["custom"] for name, v in settings.items() if isinstance(v, dict) and name not in overrides}
    if missing:
        name, what = next(iter(missing.items()))
        raise CheckpointError(
            f"{path} was made with {name}={what}, which a file cannot carry. "
            f"Pass it again: Adapter.load(path, model, {name}=...)."
        )
    tensors = [name for name, value in overrides.items() if isinstance(value, Tensor)]
    if tensors:
        raise CheckpointError(f"{tensors[0]} is part of the saved state and cannot be replaced. Build a new adapter.")
    return {name: value for name, value in settings.items() if name not in overrides} | dict(overrides)


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A nested state with every tensor moved to ``tensors`` and its name left in its place."""
    if isinstance(value, Tensor):
        tensors[name] = value.clone()  # remembered tensors share memory, which the format refuses
        return {"tensor": name}
    if isinstance(value, Mapping):
        items = [[key, _take_tensors(item, f"{name}/{key}", tensors)] for key, item in value.items()]
        return {"map": items}
    if isinstance(value, (list, tuple)):
        return [_take_tensors(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    return value


def _put_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        return tensors[value["tensor"]]
    if isinstance(value, dict):
        return {key: _put_tensors(item, tensors) for key, item in value["map"]}
    if isinstance(value, list):
        return [_put_tensors(item, tensors) for item in value]
    return value
