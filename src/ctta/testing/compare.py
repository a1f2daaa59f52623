"""Compare tensors and nested states bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same dtype, shape and bits; memory layout is ignored.

    Args:
        a: A tensor.
        b: The tensor to compare with.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(_bytes(a), _bytes(b))


def difference(a: Any, b: Any, where: str = "") -> str | None:
    """Describe the first difference between two nested states.

    Args:
        a: Tensors, numbers and strings in nested dicts and sequences.
        b: The state to compare with.
        where: Path of ``a`` and ``b`` in an outer state, used in the description.

    Returns:
        The path and the kind of difference, or None if the states are bit-equal.
    """
    here = where or "state"
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return None if same_bits(a, b) else _gap(a, b, here)
    # Tuples become lists in a checkpoint.
    a, b = (list(v) if isinstance(v, tuple) else v for v in (a, b))
    if type(a) is not type(b):
        return f"{here}: {type(a).__name__} against {type(b).__name__}"
    if isinstance(a, Mapping):
        if a.keys() != b.keys():
            return f"{here}: keys {sorted(map(str, a.keys() ^ b.keys()))} on one side only"
        pairs = [(a[key], b[key], f"{where}.{key}" if where else str(key)) for key in a]
    elif isinstance(a, Sequence) and not isinstance(a, str):
        if len(a) != len(b):
            return f"{here}: {len(a)} entries against {len(b)}"
        pairs = [(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        # Compare by repr too, so that NaN equals NaN.
        return None if a == b or repr(a) == repr(b) else f"{here}: {a!r} against {b!r}"
    return next((found for pair in pairs if (found := difference(*pair))), None)


def _bytes(x: Tensor) -> Tensor:
    return x.detach().contiguous().view(-1).view(torch.uint8)


def _gap(a: Tensor, b: Tensor, where: str) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{where}: {tuple(a.shape)} {a.dtype} against {tuple(b.shape)} {b.dtype}"
    return f"{where}: values differ by up to {(a.double() - b.double()).abs().max().item():.3g}"
