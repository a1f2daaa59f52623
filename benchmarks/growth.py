"""Measure how the cost of a DMSE step grows with batch size, number of classes and number of parameters.

Each row is in units of a forward pass of the same network and batch: equal numbers in a column mean that nothing in the
step grows faster than the network itself.
"""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.subjects import cifar_net, noise
from benchmarks.timing import Work, interleave
from ctta.methods import DMSE

BATCHES, CLASSES, WIDTHS = (50, 100, 200, 400), (10, 100, 1000, 10_000), (8, 16, 32, 64)


def measure(plan: Plan) -> list[Report]:
    """Measure each kind of growth."""
    rounds, quick = plan.rounds, plan.quick
    side, depth, small = (16, 8, 8) if quick else (32, 20, 64)
    net = partial(cifar_net, depth)
    batches = {f"batch {n}": _pair(net(), n, side) for n in ((4, 8) if quick else BATCHES)}
    classes = {f"{c} classes": _pair(net(c), small, side) for c in (CLASSES[:2] if quick else CLASSES)}
    nets = [net(10, width) for width in ((4, 8) if quick else WIDTHS)]
    sizes = {f"{sum(p.numel() for p in n.parameters()):,} parameters": _pair(n, small, side) for n in nets}
    return [
        _report("growth: batch", batches, rounds),
        _report("growth: classes", classes, rounds),
        _report("growth: parameters", sizes, rounds),
    ]


def _pair(model: torch.nn.Module, batch: int, side: int) -> tuple[Work, Work]:
    x = noise(batch, side)
    return partial(torch.no_grad()(model), x), partial(DMSE(model), x)


def _report(title: str, pairs: dict[str, tuple[Work, Work]], rounds: int) -> Report:
    works = {f"{name} forward": forward for name, (forward, _) in pairs.items()}
    works |= {name: step for name, (_, step) in pairs.items()}
    times = interleave(works, rounds)
    rows = []
    for name in pairs:
        ratio, median = times.ratio(name, f"{name} forward"), times.median(name)
        growth = times.ratio(name, next(iter(pairs)))
        rows.append(Row(name, ratio.cpu, {"by wall": ratio.wall, "/ first": growth.cpu, "CPU s": median.cpu}))
    return Report(title, "by CPU", rows)
