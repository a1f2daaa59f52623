"""Keep stdout for results: what the user's code prints, at any time and in any way, goes to stderr."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


class _Stdout:
    """The stdout of this process.

    Attributes:
        owned: Whether this process does nothing but run one command, so that its stdout may be moved for good.
        kept: The real stdout after it was moved.
    """

    owned: bool = False
    kept: TextIO | None = None


def own_stdout() -> None:
    """Declare that this process runs one command only; `keep_for_results` does nothing otherwise."""
    _Stdout.owned = True


def keep_for_results() -> None:
    """Send everything to stderr until the process ends, apart from `write_result`.

    That includes output of other threads, of child processes, of C code and of functions that run at exit.
    """
    if not _Stdout.owned or _Stdout.kept is not None:
        return
    with suppress(OSError, ValueError):  # no such streams, as in a service
        sys.stdout.flush()
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        _Stdout.kept = os.fdopen(os.dup(1), "w", encoding=encoding, errors=errors)
        os.dup2(2, 1)
        sys.stdout = sys.stderr


def write_result(text: str) -> None:
    """Write a result to stdout.

    Args:
        text: The result, without its last line break.
    """
    stream = sys.stdout if _Stdout.kept is None else _Stdout.kept
    stream.write(f"{text}\n")
    stream.flush()
