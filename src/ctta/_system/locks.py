"""Lock an open file, so that one process at a time owns what it stands for."""

from __future__ import annotations


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


def _try_lock_on_windows(file: int) -> bool:
    import msvcrt  # noqa: PLC0415, on Windows alone

    try:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True
