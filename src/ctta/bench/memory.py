"""Measure the memory of a run."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

from ctta._system.allocator import give_back_freed_memory


def peak_memory() -> int | None:
    """The largest resident size of this process so far, in bytes; None if the platform does not report it."""
    # On Linux, getrusage may report the peak of the process that started this one.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    try:
        import resource  # noqa: PLC0415, not on every platform
    except ModuleNotFoundError:
        return None
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if platform.system() == "Darwin" else 1024 * size


def reset_peak_memory() -> None:
    """Reset the peak-memory counter to what is resident now (Linux only)."""
    give_back_freed_memory()
    # proc(5): 5 resets the peak.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
