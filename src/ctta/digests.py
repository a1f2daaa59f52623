"""Digests of files, read in pieces."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

_PIECE = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    return _digest(path, "sha256")


def md5_of(path: Path) -> str:
    """The MD5 of a file: against accidents, for publishers that give no better one."""
    return _digest(path, "md5")


def sha256_of_code(cls: type) -> str | None:
    """The SHA-256 of the file that defines a class outside ctta; None for ctta's own, or where there is no file."""
    if cls.__module__.partition(".")[0] == "ctta":
        return None
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):
        return None
    return None if file is None or not Path(file).is_file() else sha256_of(Path(file))


def _digest(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
