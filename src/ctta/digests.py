"""Digests of files, read in pieces."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    return _digest(path, "sha256")


def md5_of(path: Path) -> str:
    """The MD5 of a file: against accidents, for publishers that give no better one."""
    return _digest(path, "md5")


def _digest(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
