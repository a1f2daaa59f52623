"""A cache of small texts between runs. If it is lost, damaged or read-only, results only take longer."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ctta._system.files import write_atomically

_LARGEST = 1 << 16


def cache_folder() -> Path:
    """Return the folder of the cache: ``CTTA_CACHE``, or ``ctta`` in the user's cache folder."""
    if given := os.environ.get("CTTA_CACHE"):
        return Path(given)
    # Relative paths are invalid in XDG_CACHE_HOME.
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "ctta"  # noqa: PTH117


def recall(key: str) -> str | None:
    """Return the text stored under a key, or None if there is none or its entry is damaged.

    Args:
        key: The key.
    """
    with suppress(OSError, ValueError, RuntimeError):
        with _entry(key).open("rb") as file:
            check, _, text = file.read(_LARGEST).decode().partition("\n")
        if check == _check(key, text):
            return text
    return None


def keep(key: str, text: str) -> None:
    """Store a text under a key, if the cache can be written.

    Args:
        key: The key.
        text: The text, of less than 64 kB.
    """
    with suppress(OSError, RuntimeError):
        write_atomically(_entry(key), f"{_check(key, text)}\n{text}".encode())


def _entry(key: str) -> Path:
    name = hashlib.sha256(key.encode()).hexdigest()
    return cache_folder() / name[:2] / name[2:]


def _check(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()
