"""Write files atomically, and recognise failed downloads."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from glob import escape
from pathlib import Path
from tempfile import TemporaryFile

from ctta.errors import ParameterError

_STALE_SECONDS = 3600


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that readers see either the old content or the new one, never a part.

    Args:
        path: The file to write. Missing folders are created.
        data: Its content.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A killed process leaves its temporary file behind; remove those that are too old to be in use.
    for left in target.parent.glob(f".{escape(target.name)}.*.tmp"):
        with suppress(FileNotFoundError):  # another writer may have renamed its own by now
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    # The system applies the umask; to read it, it would have to be changed for the whole process.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def check_output(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written, before long work whose result it will hold. Missing folders are created.

    Args:
        path: The file that will be written.

    Raises:
        ParameterError: If the path is a folder, or no file can be created in its folder.
    """
    target = Path(path)
    if target.is_dir():
        raise ParameterError(f"The output must be a file; {target} is a folder. Name a file in it.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise ParameterError(f"The output {target} cannot be written: {error}. Name another file.") from error


def is_file(path: Path) -> bool:
    """Check whether a path is a file. Names that the system refuses (too long, unreadable, a NUL) are not.

    Args:
        path: The path.
    """
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be written anywhere: bytes that are not UTF-8 become ``\\xNN``.

    Args:
        path: A path, or a part of one.
    """
    try:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte, which TOML and JSON can contain
        return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def size(count: float) -> str:
    """Format a number of bytes, such as "3.3 MB".

    Args:
        count: The number of bytes.

    Example:
        >>> size(1_234_567)
        '1.2 MB'
    """
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f} bytes"


def foreign(start: bytes) -> str | None:
    """Recognise a file left behind by a failed download.

    Args:
        start: The first bytes of the file.

    Returns:
        What the file is, or None if it may be the expected file.

    Example:
        >>> foreign(b"<!DOCTYPE html><html>")
        'an HTML page'
    """
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not start:
        return "an empty file"
    if text.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    if text.startswith(b"<?xml"):
        return "an XML page"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer"
    return None


def _sync_directory(folder: Path) -> None:
    # The rename is stored in the directory; not every platform can open one.
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
