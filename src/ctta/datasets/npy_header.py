"""The header of an npy file: parsed without numpy's reader, so that a damaged one cannot fill memory or run code."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

_MAGIC = b"\x93NUMPY"
_LONGEST = 10_000  # numpy's own limit for headers of untrusted files
_PLAIN = re.compile(r"([<>|=]?)([biuf])([1248])")
_MOST_DIMENSIONS, _LONGEST_SIDE = 8, 1 << 48


@dataclass(frozen=True)
class NpyHeader:
    """What the header of an npy file says about its array.

    Args:
        dtype: The type of the numbers.
        shape: The shape of the array.
        fortran: Whether the array is in Fortran order.
        length: The length of the header itself, in bytes.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    length: int  # of the header itself, in bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the array, computed without overflow."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: BinaryIO) -> NpyHeader:
    """Read the header at the file's position.

    Args:
        file: A file open for reading bytes; it is left at the start of the array.

    Raises:
        ValueError: if it is truncated, too long or malformed, or if the array does not hold plain numbers.
    """
    start = file.read(8)
    if len(start) < 8 or not start.startswith(_MAGIC):
        raise ValueError("it does not start as an npy")
    version = start[6]
    if version not in (1, 2):
        raise ValueError(f"version {version} of the format is not for plain numbers")
    width = 2 if version == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _LONGEST:
        raise ValueError(f"its header claims {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("its header is truncated")
    dtype, shape, fortran = _parsed(text.decode("latin1"))
    return NpyHeader(dtype, shape, fortran, 8 + width + length)


def _parsed(text: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        # Python 2 wrote long integers with an L.
        header = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text).strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("its header cannot be parsed") from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header does not describe an array")
    descr, shape, fortran = header["descr"], header["shape"], header["fortran_order"]
    known = _PLAIN.fullmatch(descr) if isinstance(descr, str) else None
    if known is None:
        raise ValueError(f"it holds {str(descr)[:40]!r}, not plain numbers")
    if (
        not isinstance(shape, tuple)
        or len(shape) > _MOST_DIMENSIONS
        or not all(type(side) is int and 0 <= side < _LONGEST_SIDE for side in shape)
        or not isinstance(fortran, bool)
    ):
        raise ValueError(f"its header claims the shape {str(shape)[:80]}")
    try:
        return np.dtype(descr), shape, fortran
    except TypeError as error:  # f1, b8: a kind and a size that do not match
        raise ValueError(f"it holds {descr!r}, not plain numbers") from error
