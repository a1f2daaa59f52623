"""What one step of every method costs: plain forward pass (eval, no grad, fp32, the network as a user has it) = 1."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.straightforward import StraightforwardDMSE
from benchmarks.subjects import Subject
from benchmarks.timing import Work, interleave
from ctta.classifier import Precision
from ctta.methods import DMSE

FORWARD, BASELINE = "forward", "straightforward"


def measure(plan: Plan) -> list[Report]:
    """Every network in its turn."""
    return [_costs(subject, plan.precisions, plan.rounds) for subject in plan.subjects]


def _costs(subject: Subject, precisions: tuple[Precision, ...], rounds: int) -> Report:
    """Steps of methods beside the forward pass and the straightforward DMSE."""
    x = subject.images()
    works: dict[str, Work] = {FORWARD: partial(torch.no_grad()(subject.model()), x)}
    works[BASELINE] = partial(StraightforwardDMSE(subject.model(), **DMSE.recipe(subject.recipe)), x)
    for precision in precisions:
        works |= {f"{name} {precision}": partial(subject.adapter(name, precision), x) for name in subject.methods}
    times = interleave(works, rounds)

    rows = []
    for name in works:
        ratio, median = times.ratio(name, FORWARD), times.median(name)
        rows.append(Row(name, ratio.cpu, {"by wall": ratio.wall, "CPU s": median.cpu, "wall s": median.wall}))
    for precision in precisions:
        ratio = times.ratio(f"dmse {precision}", BASELINE)
        rows.append(Row(f"dmse {precision} / {BASELINE}", ratio.cpu, {"by wall": ratio.wall}))
    return Report(f"step: {subject.title}", "by CPU", rows)
