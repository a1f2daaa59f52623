"""Files that only an unfinished run has: its lock, and the number of threads that it computes with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ctta._system.files import write_atomically
from ctta._system.locks import try_lock
from ctta.errors import BadData, ConcurrentUse

_MOST_THREADS = 4096


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold a lock on a file, and delete the file at the end.

    Args:
        path: The file, in the folder of a run; it is created.

    Raises:
        ConcurrentUse: Another process holds the lock.
    """
    while True:
        with path.open("w") as file:
            if not try_lock(file.fileno()):
                raise ConcurrentUse(
                    f"Another process is already working on this run ({path.parent}). Wait for it, or use another "
                    "--out."
                )
            # The previous holder may have deleted the file after we opened it; our lock would then guard nothing.
            try:
                held = os.path.samestat(os.fstat(file.fileno()), path.stat())
            except FileNotFoundError:
                continue
            if held:
                yield
                with suppress(PermissionError):  # Windows does not delete a file that is open
                    path.unlink(missing_ok=True)
                return


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
