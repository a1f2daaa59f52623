"""The memory of a run is its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PEAKS = """
from pathlib import Path
from ctta.allocator import keep_freed_memory
from ctta.bench.memory import forget_peak, peak_memory
keep_freed_memory()
def told():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return 1024 * int(line.split()[1])
blocks = [b"x" * (1 << 20) for _ in range(400)]
before = peak_memory()
# The kernel counts pages per core and adds up now and then.
assert abs(before - told()) < 40e6
del blocks
forget_peak()
after = peak_memory()
assert abs(after - told()) < 40e6
print(before - after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_run_does_not_answer_for_what_its_process_did_before() -> None:
    found = subprocess.run([sys.executable, "-c", PEAKS], check=True, capture_output=True, text=True).stdout
    assert int(found) > 300e6
