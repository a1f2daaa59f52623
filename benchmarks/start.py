"""Measure `import ctta` and `ctta --help`: the least CPU time over several fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.timing import Seconds

_CLOCK = "import time; import torch; wall, cpu = time.perf_counter(), time.process_time()"
_SHOW = "print(time.process_time() - cpu, time.perf_counter() - wall)"
_HELP = "import sys; from ctta.cli import main; sys.argv = ['ctta', '--help']; main()"


def measure(plan: Plan) -> list[Report]:
    """Measure every start several times and take the minimum."""
    starts = 1 if plan.quick else max(plan.rounds, 5)
    rows = [
        _row("import ctta, beyond torch", [_timed_inside("import ctta") for _ in range(starts)]),
        _row("first use of ctta.DMSE", [_timed_inside("import ctta; ctta.DMSE") for _ in range(starts)]),
        _row("ctta --help", [_process(_HELP) for _ in range(starts)]),
        _row("python -c pass", [_process("pass") for _ in range(starts)]),
    ]
    return [Report("start", "CPU s", rows)]


def _row(name: str, times: list[Seconds]) -> Row:
    return Row(name, min(t.cpu for t in times), {"wall s": min(t.wall for t in times)})


def _timed_inside(code: str) -> Seconds:
    done = subprocess.run(
        [sys.executable, "-c", f"{_CLOCK}; {code}; {_SHOW}"], check=True, capture_output=True, text=True
    )
    return Seconds(*map(float, done.stdout.split()))


def _process(code: str) -> Seconds:
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(cpu, after.elapsed - before.elapsed)
