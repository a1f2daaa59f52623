"""Measure a step of every method, in units of a plain forward pass (eval, no grad, fp32, the user's own network)."""

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

FORWARD, BASELINE, PASSES = "forward", "straightforward", "passes of dmse"


def measure(plan: Plan) -> list[Report]:
    """Measure every network."""
    return [_costs(subject, plan.precisions, plan.rounds) for subject in plan.subjects]


def _costs(subject: Subject, precisions: tuple[Precision, ...], rounds: int) -> Report:
    """Time steps of the methods, the forward pass and the straightforward DMSE."""
    x = subject.images()
    works: dict[str, Work] = {FORWARD: partial(torch.no_grad()(subject.model()), x)}
    works[BASELINE] = partial(StraightforwardDMSE(subject.model(), **DMSE.recipe(subject.recipe)), x)
    works[PASSES] = _passes(subject)
    for precision in precisions:
        works |= {f"{name} {precision}": partial(subject.adapter(name, precision), x) for name in subject.methods}
    times = interleave(works, rounds)

    rows = []
    for name in works:
        ratio, median = times.ratio(name, FORWARD), times.median(name)
        rows.append(Row(name, ratio.cpu, {"by wall": ratio.wall, "CPU s": median.cpu, "wall s": median.wall}))
    for precision in precisions:
        for base in (BASELINE, PASSES):
            ratio = times.ratio(f"dmse {precision}", base)
            rows.append(Row(f"dmse {precision} / {base}", ratio.cpu, {"by wall": ratio.wall}))
    return Report(f"step: {subject.title}", "by CPU", rows)


def _passes(subject: Subject) -> Work:
    """Build the passes of an fp32 step of DMSE: one by the teacher, two by the student, and their gradients."""
    adapter, x = subject.adapter("dmse"), subject.images().to(memory_format=torch.channels_last)
    student, teacher = adapter.student, adapter.get_submodule("teacher")

    def passes() -> None:
        target = teacher(x)
        (student(x) + student(x) - target).square().mean().backward()
        student.zero_grad(set_to_none=True)

    return passes
