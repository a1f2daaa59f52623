"""Measure how soon a caller gets the prediction: `ask` as a share of the whole step, and in plain forward passes."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial

import torch

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.subjects import Subject
from benchmarks.timing import Seconds, time_once
from ctta._adapter.answer import Answer
from ctta.adapter import Adapter

BATCH = 64


def measure(plan: Plan) -> list[Report]:
    """Measure the time to prediction of every method on each requested network."""
    return [_shares(_at_batch_64(subject), plan.rounds) for subject in plan.subjects]


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


def _ask_and_learn(adapter: Adapter, x: torch.Tensor) -> tuple[Seconds, Seconds]:
    answers: list[Answer] = []
    ask = time_once(lambda: answers.append(adapter.ask(x)))
    return ask, time_once(answers[0].learn)
