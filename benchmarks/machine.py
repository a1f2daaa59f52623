"""Describe the machine that the numbers were measured on."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

import torch

_BF16 = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}


@cache
def has_bf16() -> bool:
    """Return whether the CPU is known to have bfloat16 instructions."""
    return bool(_BF16 & _flags())


def facts() -> dict[str, str | int | bool]:
    """Return versions, cores, threads and instruction sets."""
    widest = next((name for name in ("avx512f", "avx2") if name in _flags()), platform.machine())
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "vectors": widest,
        "bf16": has_bf16(),
    }


@cache
def _flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return frozenset()
    lines = (line.partition(":")[2] for line in text.splitlines() if line.lower().startswith(("flags", "features")))
    return frozenset(next(lines, "").split())
