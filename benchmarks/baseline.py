"""A DMSE step beside the straightforward one of plain_dmse.py."""

from __future__ import annotations

import torch

from benchmarks.options import Options
from benchmarks.plain_dmse import PlainDMSE
from benchmarks.report import Row
from benchmarks.timing import beside
from benchmarks.workloads import forward, workloads


def measure(options: Options) -> list[Row]:
    rows = []
    for workload in workloads(options):
        x = workload.batch()
        plain = PlainDMSE(workload.model(), torch.Generator().manual_seed(0))
        ours = {
            precision: (lambda adapter=workload.adapter("dmse", precision): adapter(x))
            for precision in options.precisions
        }
        for precision, ratio in beside(lambda: plain.step(x), ours, options.times).items():
            rows.append(Row(f"baseline/{workload.name}/{precision}/dmse", ratio.cpu, "baseline", ratio.details))
        (ratio,) = beside(forward(workload.model(), x), {"": lambda: plain.step(x)}, options.times).values()
        rows.append(Row(f"baseline/{workload.name}/fp32/itself", ratio.cpu, "forwards", ratio.details))
    return rows
