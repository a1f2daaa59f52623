"""What the processor announces and cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

_CPU = Path("/proc/cpuinfo")
_PRODUCT = "import torch; torch.set_num_threads(1); a = torch.ones(512, 512, dtype=torch.bfloat16); a @ a"
#: What to set, before Python starts, where `bf16_crashes`.
WITHOUT_AMX = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


@cache
def bf16_crashes() -> bool:
    """Tell whether a bfloat16 product on the CPU would end this process.

    Some virtual machines announce AMX and trap its instructions. Where AMX is announced and oneDNN is free to use it, a
    child process tries; this takes as long as importing torch, once.
    """
    variable, _ = WITHOUT_AMX
    if variable in os.environ or not _CPU.exists() or "amx_tile" not in _CPU.read_text():
        return False
    tried = subprocess.run([sys.executable, "-c", _PRODUCT], check=False, capture_output=True)
    return tried.returncode < 0
