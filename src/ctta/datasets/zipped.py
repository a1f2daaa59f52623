"""Arrays inside an npz: read within bounds, or mapped into memory if they are large and not compressed."""

from __future__ import annotations

import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from ctta._system.files import size
from ctta.datasets.npy_header import NpyHeader, read_header

#: Exceptions that zipfile and the decompressors raise for a damaged archive.
DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
_PIECE = 1 << 24
_DEFLATE_RATIO = 1032  # the highest ratio that deflate can reach
_BOMB_RATIO, _BOMB_FROM = 200, 1 << 30
_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")


def members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the arrays of an npz by name, without reading them.

    Args:
        archive: The open npz.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename:
            continue
        if name in found:
            raise ValueError(f"it holds two arrays {name!r}")
        found[name] = member
    return found


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read a whole array; zipfile checks its CRC.

    Args:
        archive: The open npz.
        member: The entry of the array.
    """
    _refuse_encrypted(member)
    _refuse_bomb(member)
    with archive.open(member) as file:
        header = _header(cast(BinaryIO, file), member)
        data, filled = np.empty(header.nbytes, np.uint8), 0
        while piece := file.read(min(_PIECE, len(data) - filled)):
            data[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
        if filled < len(data) or file.read(1):
            raise ValueError("an array is not as long as it claims")
    return data.view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")


def map_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Map an array that is stored without compression into memory; `crc_holds` checks its CRC.

    Args:
        path: The npz file.
        archive: The same file, open.
        member: The entry of the array.
    """
    _refuse_encrypted(member)
    with archive.open(member) as file:
        header = _header(cast(BinaryIO, file), member)
    offset = _data_offset(path, member) + header.length
    if offset + header.nbytes > path.stat().st_size:
        raise ValueError("it is truncated")
    # Copy on write, so that torch can share the pages without a warning; the file itself never changes.
    return np.memmap(path, header.dtype, "c", offset, header.shape, "F" if header.fortran else "C")


def crc_holds(path: Path, member: zipfile.ZipInfo) -> bool:
    """Return whether the bytes of a member stored without compression have the CRC in the archive.

    Args:
        path: The npz file.
        member: The entry of the array.
    """
    crc = 0
    for piece in _stored_pieces(path, member):
        crc = zlib.crc32(piece, crc)
    return crc == member.CRC


def _stored_pieces(path: Path, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(_data_offset(path, member))
        left = member.file_size
        while left and (piece := file.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece


def _header(file: BinaryIO, member: zipfile.ZipInfo) -> NpyHeader:
    header = read_header(file)
    if header.length + header.nbytes != member.file_size:
        raise ValueError(f"an array claims {size(header.nbytes)} where the archive has {size(member.file_size)}")
    return header


def _data_offset(path: Path, member: zipfile.ZipInfo) -> int:
    with path.open("rb") as file:
        file.seek(member.header_offset)
        start = file.read(_LOCAL_HEADER.size)
    if len(start) < _LOCAL_HEADER.size or not start.startswith(b"PK\x03\x04"):
        raise ValueError("the archive does not have its array where it says")
    *_, name, extra = _LOCAL_HEADER.unpack(start)
    return member.header_offset + _LOCAL_HEADER.size + int(name) + int(extra)


def _refuse_encrypted(member: zipfile.ZipInfo) -> None:
    if member.flag_bits & 0x1:
        raise ValueError("it is encrypted: save it without a password")


def _refuse_bomb(member: zipfile.ZipInfo) -> None:
    """Refuse sizes that the compressed bytes cannot expand to, or that exceed the memory of this machine."""
    claimed, held = member.file_size, member.compress_size
    impossible = {zipfile.ZIP_STORED: claimed != held, zipfile.ZIP_DEFLATED: claimed > _DEFLATE_RATIO * (held + 64)}
    if impossible.get(member.compress_type, False):
        raise ValueError(f"an array claims {size(claimed)} in {size(held)}")
    if claimed >= _BOMB_FROM and claimed > _BOMB_RATIO * held:
        raise ValueError(f"{size(held)} would unpack to {size(claimed)}: save it with np.savez, without compression")
    if claimed > _physical_memory():
        raise ValueError(
            f"a compressed array of {size(claimed)} does not fit into memory: save it with np.savez, "
            "which can be read in parts"
        )


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every platform
        return 16 << 30
