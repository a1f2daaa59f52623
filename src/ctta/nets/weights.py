"""Read weights files without unpickling code, load them into a network only if everything fits, and write them."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from ctta._system.files import foreign, size, write_atomically
from ctta.errors import MissingData, NotWeights

ENVELOPES = ("state_dict", "model_state_dict", "model")
WRAPPERS = ("module.", "_orig_mod.", "model.")
SHOWN = 5

#: Likely cause, by what the file turned out to be.
ADVICE = {
    "an HTML page": "the host asked for confirmation",
    "an XML page": "the host answered with an error",
    "a Git LFS pointer": "run git lfs pull",
}

# First bytes of the files that torch wrote before it used zip.
LEGACY = [pickle.dumps(torch.serialization.MAGIC_NUMBER, protocol) for protocol in (2, 3, 4, 5)]

# Published files often hold an accuracy as a numpy scalar next to the weights; rebuilding one runs no foreign code.
_scalar = np.float64(0).__reduce__()[0]
NUMPY_NUMBERS: list[Any] = [
    (_scalar, "numpy.core.multiarray.scalar"),
    (_scalar, "numpy._core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "int64")),
]


def read_weights(
    path: str | os.PathLike[str], *, drop: Collection[str] = (), own: Collection[str] = ()
) -> dict[str, Tensor]:
    """Read weights from a safetensors or torch file.

    Prefixes of wrappers such as ``module.`` are removed from the names, and half precision becomes float32.

    Args:
        path: The file.
        drop: Entries that do not belong to the network, such as the normalisation buffers of a wrapper.
        own: The names in the network. A prefix stays if some of the file's names are among them with it.

    Raises:
        MissingData: If the file does not exist.
        NotWeights: If it holds anything but weights, or is damaged.
    """
    path = Path(path)
    if not path.exists():
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}. Put it there or give its path.")
    if path.is_dir():
        raise NotWeights(f"{path} is a folder, not a weights file.")
    with path.open("rb") as file:
        start = file.read(512)
    table = _tensors(_read(path, start), path)
    for prefix in (*WRAPPERS, ""):
        table = {key: value for key, value in table.items() if key not in drop}
        if all(key.startswith(prefix) for key in table) and not any(key in own for key in table):
            table = {key.removeprefix(prefix): value for key, value in table.items()}
    halves = (torch.float16, torch.bfloat16)
    return {key: value.float() if value.dtype in halves else value for key, value in table.items()}


def fit(module: nn.Module, weights: Mapping[str, Tensor], *, what: str = "The weights") -> None:
    """Copy weights into a module if every name and shape matches.

    Batch norm's `num_batches_tracked` may be missing, as in old files.

    Args:
        module: The network.
        weights: Its weights by name.
        what: What to call the weights in an error.

    Raises:
        NotWeights: If a name or shape does not match.
    """
    own = module.state_dict()
    missing = [key for key in own if key not in weights and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in weights if key not in own]
    shapes = [
        f"{key} {tuple(weights[key].shape)} instead of {tuple(own[key].shape)}"
        for key in own
        if key in weights and weights[key].shape != own[key].shape
    ]
    faults = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    if any(entries for _, entries in faults):
        found = "; ".join(f"{len(entries)} {kind}: {_first(entries)}" for kind, entries in faults if entries)
        raise NotWeights(f"{what} do not fit {type(module).__name__}: {found}.")
    module.load_state_dict(own | dict(weights))


def write_weights(path: str | os.PathLike[str], net: nn.Module, facts: Mapping[str, object]) -> None:
    """Write the weights of a network to a safetensors file. The same weights and facts give the same bytes.

    Args:
        path: The file to write.
        net: The network.
        facts: How the weights were made, stored as JSON in the entry "ctta" of the metadata.
    """
    values = {name: value.contiguous().cpu() for name, value in net.state_dict().items()}
    # One entry: several would be written in an order that changes from run to run.
    write_atomically(path, save(values, metadata={"ctta": json.dumps(facts, sort_keys=True)}))


def _first(entries: list[str]) -> str:
    return ", ".join(entries[:SHOWN]) + (", ..." if len(entries) > SHOWN else "")


def _read(path: Path, start: bytes) -> object:
    length = size(path.stat().st_size)
    if what := _foreign(start):
        raise NotWeights(f"{path.name} is {what.format(size=length)}")
    try:
        if start[8:9] == b"{":
            return load_file(path)
        with torch.serialization.safe_globals(NUMPY_NUMBERS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail anywhere inside torch.load
        called = re.search(r"GLOBAL (\S+)", str(error))
        if called and isinstance(error, pickle.UnpicklingError):
            raise NotWeights(
                f"{path.name} is a pickle that calls {called[1]}, not plain weights; nothing in it was run. "
                "Save its state_dict() alone, or as safetensors."
            ) from error
        reason = re.split(r"(?<=\S)\.(?=\s)|\n", str(error).rstrip("."))[0]
        raise NotWeights(f"{path.name} is damaged, truncated or foreign ({length}): {reason}.") from error


def _foreign(start: bytes) -> str | None:
    if not start:
        return "an empty file, not weights: the download did not finish."
    if what := foreign(start):
        return f"{what} ({{size}}), not weights: {ADVICE[what]}."
    if start[8:9] == b"{" or start.startswith((b"PK\x03\x04", *LEGACY)):
        return None
    if start.startswith(b"\x80"):
        return "a pickle that torch did not write ({size}), not weights; nothing in it was run."
    return "neither a safetensors nor a torch file ({size})."


def _tensors(found: object, path: Path) -> dict[str, Tensor]:
    while isinstance(found, Mapping):
        if found and all(isinstance(value, Tensor) for value in found.values()):
            return {str(key): value for key, value in found.items()}
        inner = [found[key] for key in ENVELOPES if isinstance(found.get(key), Mapping)]
        if not inner:
            keys = _first([repr(key) for key in found]) or "nothing"
            raise NotWeights(f"{path.name} holds no table of tensors. It holds: {keys}.")
        found = inner[0]
    raise NotWeights(f"{path.name} holds a {type(found).__name__}, not a table of tensors.")
