"""The memory reported for a run is that run's alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PEAKS = """
from ctta._system.allocator import keep_freed_memory
from ctta.bench.memory import reset_peak_memory, peak_memory
keep_freed_memory()
start = peak_memory()
blocks = [b"x" * (1 << 20) for _ in range(400)]
high = peak_memory()
del blocks
reset_peak_memory()
print(high - start, high - peak_memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process forget its peak")
def test_a_run_does_not_answer_for_what_its_process_or_its_parent_did_before() -> None:
    """The tests' own process, the parent here, is larger than its child, and getrusage reports the parent's size."""
    found = subprocess.run([sys.executable, "-c", PEAKS], check=True, capture_output=True, text=True).stdout
    rise, fall = map(int, found.split())
    # The kernel counts pages per core and adds up now and then: not to the byte.
    assert rise == pytest.approx(400 * 2**20, abs=40e6) and fall > 380e6
