"""Tune the C allocator to keep freed memory for the next tensor."""

from __future__ import annotations

import ctypes
import os

# malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Older versions of glibc refuse more than half a heap of 64 MB.
_THRESHOLDS = (1 << 30, 1 << 25)
_NEVER_TRIM = 2**31 - 1

_kept = False


def keep_freed_memory() -> bool:
    """Tell glibc to keep large freed blocks, for the whole process. Call it once, before the first tensor is created.

    By default glibc returns a block of more than 32 MB to the kernel as soon as it is freed, so that the memory of
    every large activation has to be paged in again. On some machines this takes longer than the computation. With this
    setting the process keeps as much memory as it ever used. The ``ctta`` command always does it. Other C libraries
    are not affected.

    Returns:
        Whether glibc accepted the setting.

    Example:
        >>> import ctta
        >>> ctta.keep_freed_memory() in (True, False)
        True
    """
    global _kept  # noqa: PLW0603, the setting is one of the process
    if not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    _kept = any(mallopt(_M_MMAP_THRESHOLD, size) for size in _THRESHOLDS) and bool(
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
    )
    return _kept


def could_keep_freed_memory() -> bool:
    """Return whether `keep_freed_memory` would change anything: with glibc, unless it was called or set before."""
    return _is_glibc() and not _kept and "MALLOC_MMAP_THRESHOLD_" not in os.environ


def give_back_freed_memory() -> bool:
    """Return freed memory to the kernel once, even if `keep_freed_memory` is in effect.

    Returns:
        Whether glibc returned any.
    """
    return _is_glibc() and bool(ctypes.CDLL(None).malloc_trim(0))


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows; a C library without this function
        return False
