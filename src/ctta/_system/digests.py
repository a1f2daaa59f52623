"""Digests of files, cached until a file changes."""

from __future__ import annotations

import hashlib
import inspect
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from ctta._system.cache import keep, recall

_PIECE = 1 << 20
_READERS = 4
# Timestamps of file systems have a resolution of up to 2 s. A file that was changed less than this before it was read
# may change again without a new timestamp.
_SETTLED_NS = 3_000_000_000


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file.

    Args:
        path: The file.
    """
    return _digest(path, "sha256")


def md5_of(path: Path) -> str:
    """Return the MD5 of a file, for publishers that give no better digest. It detects accidents, not attacks.

    Args:
        path: The file.
    """
    return _digest(path, "md5")


def sha256_of_code(code: type | Callable[..., object]) -> str | None:
    """Return the SHA-256 of the file that defines a class, a function, or the class of an object that is called.

    Args:
        code: The class or function; one with some arguments filled in by functools.partial counts as itself.

    Returns:
        The digest, or None if the code belongs to ctta or has no file.
    """
    while isinstance(code, partial):
        code = code.func
    if not inspect.isclass(code) and not inspect.isroutine(code):
        code = type(code)
    if (code.__module__ or "").partition(".")[0] == "ctta":
        return None
    try:
        file = inspect.getsourcefile(code)
    except (TypeError, OSError):
        return None
    return None if file is None or not Path(file).is_file() else sha256_of(Path(file))


def sha256_of_all(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the digests of files, which depends on their contents and order, not on their names.

    Args:
        paths: The files.
    """
    whole = hashlib.sha256()
    with ThreadPoolExecutor(_READERS) as pool:
        for digest in pool.map(sha256_of, paths):
            whole.update(bytes.fromhex(digest))
    return whole.hexdigest()


def remembered(kind: str, files: Iterable[Path], compute: Callable[[], str]) -> str:
    """Return what ``compute`` returns, from the cache if no file has changed since it was last computed.

    Args:
        kind: What is computed; part of the key.
        files: All files that it depends on. Device, inode, size, mtime and ctime show whether a file has changed.
        compute: Computes the text.
    """
    begin = time.time_ns()
    paths = list(files)
    state, newest = _state(paths)
    key = f"{kind}\n{state}"
    if (known := recall(key)) is not None:
        return known
    text = compute()
    if newest < begin - _SETTLED_NS and _state(paths)[0] == state:
        keep(key, text)
    return text


def _state(paths: Iterable[Path]) -> tuple[str, int]:
    """Return a digest of the metadata of files, and the time of the latest change."""
    state, newest = hashlib.sha256(), 0
    for path in paths:
        stat = os.stat(path)  # noqa: PTH116 - half the time of Path.stat, for a million files
        facts = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        state.update(f"{facts}\n".encode())
        newest = max(newest, stat.st_mtime_ns, stat.st_ctime_ns)
    return state.hexdigest(), newest


def _digest(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
