"""A short run and a served stream to track, and the numbers that a sink must then have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ctta.bench.record import Record
from jobs import make_job

JOB = make_job("dmse", "digits", "digits_resnet8", corruptions=("gaussian_noise", "fog"), images=40, batch_size=10)
NUMBERS = {"severity", "images", "wrong", "error", "loss", "seconds", "entropy", "alpha", "teacher_reset"}

#: Steps and values by name.
Numbers = dict[str, list[tuple[int, float]]]


class Interrupted(Exception):
    """Ends a run early."""


def interrupt_at(index: int) -> Any:
    """A progress callback that ends the run after a step."""

    def started(adapter: object, steps: int) -> Any:
        def progress(batch: object, log: dict[str, Any]) -> None:
            if log["index"] == index:
                raise Interrupted

        return progress

    return started


def logged(record: Record, runs: Path) -> Numbers:
    """The numbers of every step in the log of a run."""
    found: Numbers = {}
    for line in (runs / record.address / "steps.jsonl").read_text().splitlines():
        step = json.loads(line)
        for key in set(step) - {"index", "domain", "entropy_right", "entropy_wrong", "check"}:
            if step[key] is not None:
                found.setdefault(f"step/{key}", []).append((step["index"], float(step[key])))
    return found


def results(record: Record, runs: Path) -> Numbers:
    """The results of a run, each at the last step that it covers."""
    steps = [json.loads(line) for line in (runs / record.address / "steps.jsonl").read_text().splitlines()]
    found = {
        f"domain/{domain}": [(max(step["index"] for step in steps if step["domain"] == domain), error)]
        for domain, error in record.errors.items()
    }
    return found | {"mean": [(len(steps) - 1, record.mean)]}
