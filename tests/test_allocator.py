"""Freed memory is kept with glibc; on other systems nothing changes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ctta._system import allocator

glibc_only = pytest.mark.skipif(not allocator._is_glibc(), reason="another C library than glibc")


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


FAULTS = """
import resource
from ctta._system.allocator import keep_freed_memory
{}
def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
b"x" * (48 << 20)
before = pages()
for _ in range(10):
    b"x" * (48 << 20)
print(pages() - before)
"""


@glibc_only
def test_a_kept_block_is_not_paged_in_again() -> None:
    """48 MB are 12,288 pages of 4 kB, fewer if the kernel uses larger ones."""
    assert int(run(FAULTS.format("assert keep_freed_memory()"))) < 10
    assert int(run(FAULTS.format(""))) >= 10 * 24


@glibc_only
def test_it_may_be_called_twice() -> None:
    assert run("from ctta._system.allocator import *; print(keep_freed_memory(), keep_freed_memory())") == "True True"


def test_it_comes_before_torch() -> None:
    assert run("import sys, ctta._system.allocator; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("answer", [None, "musl 1.2", ValueError("unknown")])
def test_other_c_libraries_are_left_alone(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def confstr(name: str) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(allocator.os, "confstr", confstr, raising=False)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: pytest.fail("touched"))
    assert allocator.keep_freed_memory() is False
    assert allocator.give_back_freed_memory() is False


FLAT = """
from ctta._system.allocator import keep_freed_memory
keep_freed_memory()
import torch, ctta
from ctta.nets import classifier
from pathlib import Path
torch.set_num_threads(1)
def resident():
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096
adapter, x = ctta.DMSE(classifier("digits_resnet8")), torch.rand(4, 3, 32, 32)
sizes = []
for i in range(1, 121):
    adapter(x)
    if i in (40, 120):
        sizes.append(resident())
print(sizes[1] - sizes[0])
"""


@pytest.mark.trial
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_keeps_its_memory_stays_as_large_as_it_is() -> None:
    """One activation of the first layer is 0.25 MB; 80 steps that leave one behind would be 20 MB."""
    assert int(run(FLAT)) < 8e6


def test_adapting_on_a_cpu_says_how_to_keep_freed_memory_unless_it_is_kept() -> None:
    program = """
import logging, ctta
from ctta.testing.models import bn_cnn
logging.basicConfig(level=logging.INFO, format="%(message)s")
{}
ctta.adapt(bn_cnn(), mirror=True)
"""

    def told(before: str, **environment: str) -> bool:
        asked = [sys.executable, "-c", program.format(before)]
        inherited = {name: value for name, value in os.environ.items() if name != "MALLOC_MMAP_THRESHOLD_"}
        done = subprocess.run(asked, check=True, capture_output=True, text=True, env={**inherited, **environment})
        return "ctta.keep_freed_memory()" in done.stderr

    assert told("") == allocator._is_glibc()
    assert not told("ctta.keep_freed_memory()") or not allocator._is_glibc()
    assert not told("", MALLOC_MMAP_THRESHOLD_="1073741824")
