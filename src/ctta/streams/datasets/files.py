"""Arrays in files: written whole or not at all, read with an error that says what is wrong."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.errors import BadData, MissingData
from ctta.files import foreign, size, write_atomically

_MAP_FROM = 64 << 20


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    """Write named arrays as one npz."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def npy_bytes(array: NDArray[Any]) -> bytes:
    """An array as the bytes of an npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def read_npz(path: Path, *, hint: str = "") -> tuple[NDArray[Any], NDArray[Any]]:
    """The arrays `x` and `y` of an npz; `hint` says where to get a missing one."""
    if not path.is_file():
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}. {hint}".rstrip())
    _refuse_foreign(path)
    try:
        # np.load leaves a path it fails on open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            missing = [key for key in ("x", "y") if key not in found]
            if missing:
                raise BadData(f"{path} has no array {missing[0]!r}. It holds: {', '.join(found) or 'nothing'}.")
            mapped = _mapped(path, "x")
            return found["x"] if mapped is None else mapped, found["y"]
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise BadData(f"{path} is damaged, truncated or not an npz: {_sentence(error)}.") from error


def _mapped(path: Path, name: str) -> NDArray[Any] | None:
    """An array of an npz mapped into memory, where it is large and stored as it is; small ones are read and checked."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size < _MAP_FROM:
            return None
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(file)
        header = file.tell()
    with path.open("rb") as raw:
        raw.seek(member.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", raw.read(4))
    offset = member.header_offset + 30 + name_length + extra_length + header
    return np.memmap(path, dtype, "c", offset, shape, "F" if fortran else "C")


def read_npy(path: Path, *, hint: str = "") -> NDArray[Any]:
    """The array of an npy, mapped into memory: its pages are read when they are used."""
    if not path.is_file():
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}. {hint}".rstrip())
    _refuse_foreign(path)
    try:
        # Copy on write, so that torch can share the pages without a warning; the file itself never changes.
        found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadData(f"{path} is damaged, truncated or not an npy: {_sentence(error)}.") from error
    if not isinstance(found, np.memmap):
        raise BadData(f"{path} is an npz, not an npy.")
    surplus = path.stat().st_size - found.offset - found.nbytes
    if surplus:
        raise BadData(f"{path} has {surplus} bytes behind its array: it is damaged.")
    return found


def _refuse_foreign(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(512)
    if what := foreign(start):
        raise BadData(f"{path} is {what} ({size(path.stat().st_size)}), not data: download it again.")


def _sentence(error: BaseException) -> str:
    return str(error).split("\n", maxsplit=1)[0].rstrip(".")
