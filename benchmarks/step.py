"""A step of every method, in plain forward passes of the same network."""

from __future__ import annotations

from benchmarks.options import Options
from benchmarks.report import Row
from benchmarks.timing import beside
from benchmarks.workloads import forward, method_names, workloads


def measure(options: Options) -> list[Row]:
    rows = []
    for workload in workloads(options):
        x = workload.batch()
        plain = forward(workload.model(), x)
        for precision in options.precisions:
            steps = {
                name: (lambda adapter=workload.adapter(name, precision): adapter(x)) for name in method_names(options)
            }
            for name, ratio in beside(plain, steps, options.times).items():
                rows.append(Row(f"step/{workload.name}/{precision}/{name}", ratio.cpu, "forwards", ratio.details))
    return rows
