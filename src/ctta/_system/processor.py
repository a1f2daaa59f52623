"""Detect instructions that the processor announces but cannot execute."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

_CPU = Path("/proc/cpuinfo")
_PRODUCT = "import torch; torch.set_num_threads(1); a = torch.ones(512, 512, dtype=torch.bfloat16); a @ a"
#: The environment variable and value to set before Python starts if `bf16_crashes`.
WITHOUT_AMX = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


@cache
def bf16_crashes() -> bool:
    """Return whether a bfloat16 product on the CPU would crash this process.

    Some virtual machines announce AMX but trap its instructions. If AMX is announced and oneDNN may use it, a child
    process tries it once, which takes as long as importing torch.
    """
    variable, _ = WITHOUT_AMX
    if variable in os.environ or not _CPU.exists() or "amx_tile" not in _CPU.read_text():
        return False
    tried = subprocess.run([sys.executable, "-c", _PRODUCT], check=False, capture_output=True)
    return tried.returncode < 0
