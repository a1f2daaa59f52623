"""Save an adapter to one safetensors file: its tensors, and everything else as JSON in the header."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from ctta._checks.sequences import path_of
from ctta._system.files import write_atomically
from ctta._system.tensor_digest import add_tensor
from ctta.classifier import Classifier
from ctta.errors import CheckpointError, MethodMismatch, NotACheckpoint, SourceMismatch
from ctta.registry import method
from ctta.version import __version__

if TYPE_CHECKING:
    from ctta.adapter import Adapter

_FORMATS = (1, 2)  # 2 adds a digest, and the extra state of modules inside the source model
_KEY = "ctta"
_DIGEST = "digest"
_KEYS = {"method", "settings", "source", "extra"}
_EXTRA = "_extra_state"
_PLAIN = (bool, int, float, str, type(None))

AnyAdapter = TypeVar("AnyAdapter", bound="Adapter")


def save(adapter: Adapter, path: str | os.PathLike[str]) -> None:
    """Write the whole state of an adapter, atomically.

    Args:
        adapter: The adapter to save.
        path: The file to write. Its old content stays there until the new content is complete.

    Raises:
        CheckpointError: If the model has state that a file cannot hold, or the path is a folder. Nothing is written.
        ParameterError: If the path is not one.
    """
    file = path_of(path, "path")
    if file.is_dir():
        raise CheckpointError(
            f"A checkpoint is one file; {file} is a folder. Name a file in it: {file / 'adapter.ctta'}."
        )
    write_atomically(file, serialised(adapter))


def serialised(adapter: Adapter) -> bytes:
    """Return the content of a checkpoint file.

    Args:
        adapter: The adapter to save.
    """
    return capture(adapter).serialised()


@dataclass(frozen=True)
class Capture:
    """A copy of an adapter's state, which any thread may turn into a file while the adapter continues.

    Args:
        state: The state, as ``state_dict`` returns it.
        facts: The entries of the file's header: format, method, settings, digest of the source model, steps, versions.
        title: Class name of the network, for error messages.
    """

    state: dict[str, Any]
    facts: dict[str, Any]
    title: str

    def serialised(self) -> bytes:
        """The content of a checkpoint file."""
        tensors: dict[str, Tensor] = {}
        extras = {}
        for name, value in self.state.items():
            if isinstance(value, Tensor):
                tensors[name] = value.contiguous()
            else:
                extras[name] = _take_tensors(value, name, tensors)
        text = json.dumps(self.facts | {"extra": extras.pop(_EXTRA), "extras": extras})
        try:
            return _in_order(serialise(tensors, metadata={_KEY: text, _DIGEST: _digest(text, tensors)}))
        except (SafetensorError, KeyError, ValueError, RuntimeError, NotImplementedError) as error:
            raise CheckpointError(
                f"{self.title} holds a tensor that a safetensors file cannot carry ({error})."
            ) from error


def capture(adapter: Adapter) -> Capture:
    """Copy everything that a checkpoint file holds.

    Args:
        adapter: The adapter to save.
    """
    facts = {
        "format": _FORMATS[-1],
        "method": type(adapter).__name__.lower(),
        "settings": settings_of(adapter),
        "source": adapter.source_digest,
        "steps": adapter.steps,
        "versions": {"ctta": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    return Capture(adapter.state_dict(), facts, type(adapter.student.model).__name__)


def load(
    path: str | os.PathLike[str], model: nn.Module, cls: type[AnyAdapter], overrides: Mapping[str, Any]
) -> AnyAdapter:
    """Rebuild a saved adapter around its source model.

    Args:
        path: A file written by ``save``.
        model: The source model that the saved adapter started from.
        cls: The class that the result must be an instance of.
        overrides: Constructor arguments that replace the saved ones, or that a file cannot hold.

    Raises:
        NotACheckpoint: If the file is damaged, or was not written by ctta.
        MethodMismatch: If the file holds the state of another method.
        SourceMismatch: If the saved adapter started from other weights.
    """
    header, state = read(path)
    saved: type[Adapter] = cls if header["method"] == cls.__name__.lower() else _class_of(header["method"])
    if not issubclass(saved, cls):
        raise MethodMismatch(
            f"{path} holds the state of {saved.__name__}, not of {cls.__name__}. "
            f"Use {saved.__name__}.load or Adapter.load."
        )
    if header["method"] in _AROUND_ANOTHER:
        return saved.load(path, model, **overrides)
    adapter = _build(saved, header["settings"], header["source"], model, overrides, path)
    adapter.cast_like(state)
    adapter.load_state_dict(state)
    return adapter


#: Adapters around another one, by the name in their files. They are above this module, and are imported when needed.
_AROUND_ANOTHER = {"guarded": ("ctta.guarded", "Guarded")}


def _class_of(name: str) -> type[Adapter]:
    """Return the class that wrote a file."""
    if name not in _AROUND_ANOTHER:
        return method(name)
    module, attribute = _AROUND_ANOTHER[name]
    found: type[Adapter] = getattr(import_module(module), attribute)
    return found


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header of a checkpoint file, and its state in the form that ``load_state_dict`` takes.

    Args:
        path: A file written by ``save``.

    Raises:
        NotACheckpoint: If the file is damaged, or was not written by ctta.
    """
    header, tensors = _read(path_of(path, "path"))
    return header, _state(header, tensors, path)


def rebuild(
    name: str, settings: Mapping[str, Any], digest: str, model: nn.Module, overrides: Mapping[str, Any], path: object
) -> Adapter:
    """Build an adapter with the settings in a checkpoint, for files that hold an adapter inside another.

    Args:
        name: The method's name.
        settings: What ``settings_of`` returned.
        digest: The digest of the source weights.
        model: The source model.
        overrides: Constructor arguments that replace the saved ones, or that a file cannot hold.
        path: The file, for messages.

    Raises:
        SourceMismatch: If the saved adapter started from other weights.
    """
    return _build(method(name), settings, digest, model, overrides, path)


def _build(
    cls: type[AnyAdapter],
    settings: Mapping[str, Any],
    expected: str,
    model: nn.Module,
    overrides: Mapping[str, Any],
    path: object,
) -> AnyAdapter:
    source = model if isinstance(model, Classifier) else Classifier(model)
    if (digest := source.digest()) != expected:
        raise SourceMismatch(
            f"This checkpoint was adapted from weights {expected[:12]}..., not from {digest[:12]}... "
            "Load the source weights it started from (and the same mean and std) before Adapter.load."
        )
    arguments = _arguments(dict(settings), overrides, path)
    unknown = sorted(set(arguments) - set(cls.arguments()))
    if unknown:
        raise CheckpointError(
            f"{path} has settings that {cls.__name__} of ctta {__version__} does not take: {', '.join(unknown)}."
        )
    return cls(source, **arguments)


def _state(header: Mapping[str, Any], tensors: Mapping[str, Tensor], path: object) -> dict[str, Any]:
    """Reassemble the state that ``serialised`` took apart."""
    nested = {**header.get("extras", {}), _EXTRA: header["extra"]}
    try:
        state: dict[str, Any] = {name: _put_tensors(value, tensors) for name, value in nested.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise NotACheckpoint(f"{path} is damaged: its header does not describe its tensors ({error!r}).") from error
    inside = tuple(f"{name}/" for name in nested)
    return state | {name: value for name, value in tensors.items() if not name.startswith(inside)}


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the header and of every tensor's name, dtype, shape and bytes."""
    sha = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        add_tensor(sha, name, tensors[name])
    return sha.hexdigest()


def _in_order(data: bytes) -> bytes:
    """Sort the metadata of a safetensors file: the library's order differs between calls, and equal states would too.

    A file is the length of its header, the header in JSON, padded with spaces to a multiple of 8, and the tensors.
    """
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(data)[end:]))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except FileNotFoundError:
        raise NotACheckpoint(f"There is no checkpoint at {path}.") from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        size = path.stat().st_size if path.is_file() else 0
        raise NotACheckpoint(
            f"{path} ({size} bytes) is not a whole safetensors file ({error}). Restore it from a copy."
        ) from error
    try:
        header = json.loads(metadata[_KEY])
    except (KeyError, ValueError, RecursionError):
        raise NotACheckpoint(
            f"{path} is a safetensors file that ctta did not write: it has no {_KEY!r} header."
        ) from None
    form = header.get("format") if isinstance(header, dict) else None
    if form not in _FORMATS or not _well_formed(header):
        raise NotACheckpoint(
            f"{path} has format {form}; this version of ctta ({__version__}) reads {' and '.join(map(str, _FORMATS))}."
        )
    if form > 1 and metadata.get(_DIGEST) != _digest(metadata[_KEY], tensors):
        raise NotACheckpoint(f"{path} is damaged: its content does not match its digest. Restore it from a copy.")
    return header, tensors


def _well_formed(header: Mapping[str, Any]) -> bool:
    return (
        set(header) >= _KEYS
        and isinstance(header["method"], str)
        and isinstance(header["source"], str)
        and isinstance(header["settings"], dict)
        and isinstance(header.get("extras", {}), dict)
    )


def settings_of(adapter: Adapter) -> dict[str, Any]:
    """Return the settings as JSON: plain values, or the name of the type for values that a file cannot hold.

    Args:
        adapter: The adapter whose constructor arguments to return.
    """
    defaults = adapter.arguments()
    described: dict[str, Any] = {}
    for name, value in adapter.settings.items():
        if isinstance(value, _PLAIN):
            described[name] = value
        elif not is_default(value, defaults[name]) and not isinstance(value, Tensor):
            # A tensor given to the constructor (prototypes) is saved as state; a function or module is not.
            described[name] = {"custom": getattr(value, "__qualname__", type(value).__qualname__)}
    return described


def is_default(value: object, default: object) -> bool:
    """Return whether an argument has its default value.

    Args:
        value: The value.
        default: The default.
    """
    # A copy of an adapter has a copy of its view, which is a dataclass; other objects may compare in ways of their own.
    comparable = isinstance(value, _PLAIN) or (is_dataclass(default) and type(value) is type(default))
    return value is default or (comparable and value == default)


def _arguments(settings: dict[str, Any], overrides: Mapping[str, Any], path: object) -> dict[str, Any]:
    missing = {name: v.get("custom") for name, v in settings.items() if isinstance(v, dict) and name not in overrides}
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
    """Move every tensor of a nested state to ``tensors`` and replace it by its name."""
    if isinstance(value, Tensor):
        while name in tensors:  # the keys 1 and "1" are written alike
            name += "'"
        tensors[name] = value.detach().contiguous().clone()  # the format refuses tensors that share memory
        return {"tensor": name}
    if isinstance(value, Mapping):
        items = [[_key(key, name), _take_tensors(item, f"{name}/{key}", tensors)] for key, item in value.items()]
        return {"map": items}
    if isinstance(value, (list, tuple)):
        return [_take_tensors(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if not isinstance(value, _PLAIN):
        raise CheckpointError(
            f"A checkpoint carries tensors, numbers, strings, bytes, lists and dicts; {name} holds a "
            f"{type(value).__name__}, which could not be loaded again. Return one of those from get_extra_state."
        )
    return value


def _key(key: Any, name: str) -> Any:
    if not isinstance(key, _PLAIN):
        raise CheckpointError(f"Keys in a checkpoint are strings or numbers; {name} has a {type(key).__name__}.")
    return key


def _put_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        return tensors[value["tensor"]]
    if isinstance(value, dict) and "bytes" in value:
        return bytes.fromhex(value["bytes"])
    if isinstance(value, dict):
        return {key: _put_tensors(item, tensors) for key, item in value["map"]}
    if isinstance(value, list):
        return [_put_tensors(item, tensors) for item in value]
    return value
