"""Arrays in files: written atomically, and checked when they are read."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta._system.digests import remembered
from ctta._system.files import foreign, is_file, size, write_atomically
from ctta.datasets.npy_header import read_header
from ctta.datasets.zipped import DAMAGE, crc_holds, map_member, members, read_member
from ctta.errors import BadData, MissingData

_MAP_FROM = 64 << 20


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    """Write named arrays to one uncompressed npz.

    Args:
        path: The file to write; it is replaced atomically.
        arrays: The arrays by their names in the file.
    """
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Return an array as the bytes of an npy file.

    Args:
        array: An array of numbers of any shape.
    """
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_npz(path: Path, *, hint: str = "") -> tuple[NDArray[Any], NDArray[Any]]:
    """Read the arrays `x` and `y` of an npz; a large `x` that is not compressed is mapped into memory.

    Args:
        path: The file.
        hint: Where to get the file; appended to the message if it is missing.
    """
    _require(path, "an npz file with arrays x and y", hint)
    try:
        with zipfile.ZipFile(path) as archive:
            found = members(archive)
            missing = [key for key in ("x", "y") if key not in found]
            if missing:
                raise BadData(f"{path} has no array {missing[0]!r}. It holds: {', '.join(found) or 'nothing'}.")
            x = found["x"]
            if x.compress_type != zipfile.ZIP_STORED or x.file_size < _MAP_FROM:
                return read_member(archive, x), read_member(archive, found["y"])
            mapped = map_member(path, archive, x)
            if remembered("crc of x", [path], lambda: str(crc_holds(path, x))) != "True":
                raise BadData(f"{path} is damaged: the CRC of its images does not match.")
            return mapped, read_member(archive, found["y"])
    except DAMAGE as error:
        raise BadData(f"{path} is damaged, truncated or not an npz: {_sentence(error)}.") from error


def read_npy(path: Path, *, hint: str = "") -> NDArray[Any]:
    """Map the array of an npy into memory: its pages are read when they are used.

    Args:
        path: The file.
        hint: Where to get the file; appended to the message if it is missing.
    """
    _require(path, "an npy file", hint)
    try:
        with path.open("rb") as file:
            header = read_header(file)
        surplus = path.stat().st_size - header.length - header.nbytes
        if surplus < 0:
            raise ValueError(f"its array claims {size(header.nbytes)}, {size(-surplus)} more than the file has")
        if surplus == 0:
            # Copy on write, so that torch can share the pages without a warning; the file itself never changes.
            order = "F" if header.fortran else "C"
            return np.memmap(path, header.dtype, "c", header.length, header.shape, order)  # type: ignore[call-overload,no-any-return]
    except DAMAGE as error:
        raise BadData(f"{path} is damaged, truncated or not an npy: {_sentence(error)}.") from error
    raise BadData(f"{path} has {surplus} bytes behind its array: it is damaged.")


def _require(path: Path, needed: str, hint: str) -> None:
    if path.is_dir():
        raise MissingData(f"{path} is a folder, and {needed} is needed here.")
    if not is_file(path):
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}. {hint}".rstrip())
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise BadData(f"{path} cannot be opened: {error.strerror}.") from error
    if what := foreign(start):
        raise BadData(f"{path} is {what} ({size(path.stat().st_size)}), not data: download it again.")


def _sentence(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n", maxsplit=1)[0].rstrip(".")
