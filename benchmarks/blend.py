"""Measure a step with blended statistics, in units of the same step with the statistics of the batch."""

from __future__ import annotations

from functools import partial

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.subjects import RESNET20, TINY
from benchmarks.timing import Work, interleave

BATCH = "batch"
BLENDS = ("source", "prior:16", "share:0.4", "misfit", "moving:0.05", "auto")


def measure(plan: Plan) -> list[Report]:
    """Time a step of Tent and of DMSE with every kind of statistics."""
    subject = TINY if plan.quick else RESNET20
    x = subject.images()
    names = [(method, statistics) for method in ("tent", "dmse") for statistics in (BATCH, *BLENDS)]
    works: dict[str, Work] = {
        f"{method} {statistics}": partial(subject.adapter(method, statistics=statistics), x)
        for method, statistics in names
    }
    times = interleave(works, plan.rounds)
    rows = []
    for method, statistics in names:
        ratio = times.ratio(f"{method} {statistics}", f"{method} {BATCH}")
        median = times.median(f"{method} {statistics}")
        rows.append(Row(f"{method} {statistics}", ratio.cpu, {"by wall": ratio.wall, "CPU s": median.cpu}))
    return [Report(f"blend: {subject.title}", "by CPU", rows)]
