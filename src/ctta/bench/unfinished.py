"""The file that only an unfinished run has: the number of threads that it computes with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ctta._system.files import write_atomically
from ctta.errors import BadData

_MOST_THREADS = 4096


@contextmanager
def remember_threads(file: Path, now: int, *, resume: bool) -> Iterator[int]:
    """Yield the number of threads to compute with; it is kept in a file until the run has ended.

    Args:
        file: The file.
        now: The number to use for a new run.
        resume: Whether the run resumes from a checkpoint; it then uses the number in the file, if there is one.

    Raises:
        BadData: The number is damaged.
    """
    threads = _read_threads(file) if resume and file.exists() else now
    write_atomically(file, _threads_text(threads).encode())
    yield threads
    file.unlink(missing_ok=True)


def _read_threads(file: Path) -> int:
    try:
        with file.open("rb") as content:
            text = content.read(100).decode("ascii")
        # Older versions wrote the number alone.
        found = int(text if text.isdecimal() else text.split()[1])
        if 1 <= found <= _MOST_THREADS and text in (str(found), _threads_text(found)):
            return found
    except (OSError, ValueError, IndexError):
        pass
    raise BadData(
        f"{file} must hold the number of threads that the run began with, and is damaged. Delete {file.parent} to "
        "make the run again, or write the number into it."
    )


def _threads_text(threads: int) -> str:
    return f"threads {threads} {hashlib.sha256(str(threads).encode()).hexdigest()[:8]}\n"
