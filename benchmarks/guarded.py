"""Measure what the guard adds to a step: on the first batches of a stream, all of which it compares, and later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.subjects import Subject
from benchmarks.timing import Work, interleave
from ctta.adapter import Adapter
from ctta.guarded import Guarded

METHODS = ("tent", "dmse", "trio")
#: The batches on which the guard always compares, and a number of later ones after which its work repeats.
FIRST, PERIOD = 8, 16
#: The signals of the default rules, with limits that noise cannot reach: an alarm would stop the learning.
RULES = "regret > 1e6: fallback; lost_diversity > 1e6: fallback; drift > 1e6: fallback; skipped > 0.5: rollback"


def measure(plan: Plan) -> list[Report]:
    """Measure every network."""
    return [_costs(subject, plan.rounds) for subject in plan.subjects]


def _costs(subject: Subject, rounds: int) -> Report:
    x, rows = subject.images(), []
    for name in METHODS:
        build = partial(subject.adapter, name)
        begun = _guarded(build)
        _steps(begun, x, FIRST)
        works: dict[str, Work] = {
            "alone": partial(_steps, build(), x, PERIOD),
            "first": lambda build=build: _steps(_guarded(build), x, FIRST),  # type: ignore[misc]
            "later": partial(_steps, begun, x, PERIOD),
        }
        times = interleave(works, rounds)
        first, later = times.ratio("first", "alone"), times.ratio("later", "alone")
        share = PERIOD / FIRST
        rows.append(Row(f"{name}, first {FIRST} batches", first.cpu * share, {"wall": first.wall * share}))
        rows.append(Row(f"{name}, later", later.cpu, {"wall": later.wall}))
    return Report(f"guarded: {subject.title}", "of a step without a guard", rows)


def _guarded(build: Callable[[], Adapter]) -> Guarded:
    return Guarded(build(), rules=RULES)


def _steps(adapter: Adapter, x: Tensor, count: int) -> None:
    for _ in range(count):
        adapter.step(x)
