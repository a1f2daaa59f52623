"""The C allocator: keep freed memory for the next tensor."""

from __future__ import annotations

import ctypes
import os

# malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Older versions of glibc refuse more than half a heap of 64 MB.
_THRESHOLDS = (1 << 30, 1 << 25)
_NEVER_TRIM = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc to keep large freed blocks; whether it does. Call it before the first tensor.

    By default glibc returns a large block to the kernel as soon as it is freed, and every activation is paged in anew.
    The process then holds on to the most memory it ever used. Other C libraries are left as they are.
    """
    if not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return any(mallopt(_M_MMAP_THRESHOLD, size) for size in _THRESHOLDS) and bool(
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM)
    )


def give_back_freed_memory() -> bool:
    """Return what is freed to the kernel once, also where `keep_freed_memory` holds on to it; whether glibc did."""
    return _is_glibc() and bool(ctypes.CDLL(None).malloc_trim(0))


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows; a C library that does not know the name
        return False
