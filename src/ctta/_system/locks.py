"""Lock an open file, so that one process at a time owns what it stands for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ctta.errors import ConcurrentUse


@contextmanager
def hold_lock(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock on a file inside the context, and delete the file at the end.

    Args:
        path: The file; it is created.
        busy: The message if the lock is taken.

    Raises:
        ConcurrentUse: Another process holds the lock.
    """
    while True:
        with path.open("w") as file:
            if not try_lock(file.fileno()):
                raise ConcurrentUse(busy)
            if not _is_still_at(path, file.fileno()):
                continue  # the previous holder deleted the file after we opened it: our lock would guard nothing
            try:
                yield
            finally:
                with suppress(PermissionError):  # Windows does not delete a file that is open
                    path.unlink(missing_ok=True)
            return


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed or the process ends, in whatever way; return whether that was possible.

    Args:
        file: The file descriptor. The file must be open for writing.
    """
    try:
        import fcntl  # noqa: PLC0415, not on every platform
    except ModuleNotFoundError:
        return _try_lock_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_still_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _try_lock_on_windows(file: int) -> bool:
    import msvcrt  # noqa: PLC0415, on Windows alone

    try:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True
