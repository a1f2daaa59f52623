"""Measure how soon a caller gets the prediction: `ask` as a share of the whole step, and in plain forward passes.

Also measures what the split costs: `step`, and `ask` followed by `learn`, against the method's `adapt` run to its end
without anything around it.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial

import torch

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.subjects import Subject
from benchmarks.timing import Seconds, Work, interleave, time_once
from ctta._adapter.answer import Answer, finish
from ctta.adapter import Adapter, Step

BATCH = 64
#: The methods on which the cost of the split is measured.
SPLIT = ("tent", "dmse")


def measure(plan: Plan) -> list[Report]:
    """Measure the time to prediction of every method on each requested network."""
    subjects = [_at_batch_64(subject) for subject in plan.subjects]
    return [report for subject in subjects for report in (_shares(subject, plan.rounds), _split(subject, plan.rounds))]


def _at_batch_64(subject: Subject) -> Subject:
    """The same network at the batch size of a service."""
    title = subject.title.replace(f"batch {subject.batch}", f"batch {BATCH}")
    return replace(subject, title=title, batch=min(BATCH, subject.batch) if title == subject.title else BATCH)


def _shares(subject: Subject, rounds: int) -> Report:
    x = subject.images()
    forward = partial(torch.no_grad()(subject.model()), x)
    adapters = {name: subject.adapter(name) for name in subject.methods}
    shares: dict[str, list[float]] = {name: [] for name in adapters}
    passes: dict[str, list[float]] = {name: [] for name in adapters}
    for counted in (False, *[True] * rounds):
        plain = time_once(forward)
        for name, adapter in adapters.items():
            ask, learn = _ask_and_learn(adapter, x)
            if counted:
                shares[name].append(ask.cpu / (ask.cpu + learn.cpu))
                passes[name].append(ask.cpu / plain.cpu)
    rows = [
        Row(name, statistics.median(shares[name]), {"forward passes": statistics.median(passes[name])})
        for name in adapters
    ]
    return Report(f"answer: {subject.title}", "of a step", rows)


def _split(subject: Subject, rounds: int) -> Report:
    x = subject.images()
    rows = []
    for name in SPLIT:
        alone, whole, split = (subject.adapter(name) for _ in range(3))
        admitted = alone._admit(x)[0]
        works: dict[str, Work] = {
            "adapt alone": partial(_adapt_alone, alone, admitted),
            "step": partial(whole.step, x),
            "ask + learn": partial(_ask_then_learn, split, x),
        }
        times = interleave(works, rounds)
        for way in ("step", "ask + learn"):
            ratio = times.ratio(way, "adapt alone")
            rows.append(Row(f"{name}: {way} / adapt alone", ratio.cpu, {"wall": ratio.wall}))
    return Report(f"split: {subject.title}", "of adapt alone", rows)


def _adapt_alone(adapter: Adapter, x: torch.Tensor) -> None:
    work = adapter.adapt(x)
    if not isinstance(work, Step):
        finish(work)
    for parameter in adapter.trained:  # as a loop by hand would
        parameter.grad = None


def _ask_then_learn(adapter: Adapter, x: torch.Tensor) -> None:
    adapter.ask(x).learn()


def _ask_and_learn(adapter: Adapter, x: torch.Tensor) -> tuple[Seconds, Seconds]:
    answers: list[Answer] = []
    ask = time_once(lambda: answers.append(adapter.ask(x)))
    return ask, time_once(answers[0].learn)
