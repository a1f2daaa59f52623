"""Folders of run records as `ctta run` leaves them, with numbers chosen by the test."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ctta.adapter import Adapter
from ctta.bench.folder import RunFolder
from ctta.bench.new_record import new_record
from ctta.bench.record import Record
from ctta.bench.spec import RunSpec
from ctta.methods.source import Source
from ctta.testing.models import bn_cnn

DOMAINS = ("gaussian_noise", "fog", "contrast")


def steps_of(wrong: tuple[int, ...], domains: tuple[str, ...] = DOMAINS, *, teacher: bool = False) -> list[Any]:
    """Four steps of ten images per domain with a given number of errors each; entropy falls along the stream."""
    steps: list[dict[str, Any]] = []
    for domain, count in zip(domains, wrong, strict=True):
        for _ in range(4):
            entropy = 1 / (1 + len(steps))
            step = {
                "index": len(steps),
                "domain": domain,
                "severity": 5,
                "images": 10,
                "wrong": count,
                "error": 10.0 * count,
                "loss": None,
                "seconds": 0.1,
                "entropy_right": [10 - count] + [0] * 19,
                "entropy_wrong": [0] * 9 + [count] + [0] * 10,
            }
            if teacher:
                step |= {"entropy": entropy, "alpha": 0.99 + 0.01 * entropy, "teacher_reset": float(entropy < 0.2)}
            steps.append(step)
    return steps


@cache
def _adapter() -> Adapter:
    return Source(bn_cnn())


def record_of(method: str, steps: list[dict[str, Any]], *, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A JSON record that agrees with its steps; ``changes`` modify its specification."""
    spec = {
        "method": method,
        "settings": {},
        "model": {"name": "resnet20", "digest": "07ae", "mean": [0.5], "std": [0.2]},
        "data": {"name": "cifar10-c", "origin": "generated", "digest": "7bee", "corruption_seed": seed},
        "protocol": {"name": "continual"},
        "corruptions": list(dict.fromkeys(step["domain"] for step in steps)),
        "severity": 5,
        "images": 40,
        "batch_size": 10,
        "seed": seed,
        "learn": True,
        "source_data": None,
    } | changes
    command = f"ctta run {method} cifar10-c --seed {seed}"
    record = new_record(RunSpec.from_json(spec), _adapter(), steps, command=command, peak_memory=123_000_000)
    # The same on every machine, and other settings than those of the stand-in.
    return replace(
        record,
        settings={"lr": 0.001, "e_min": 0.2},
        passes=(1, 0 if method in ("source", "bn") else 1),
        environment=record.environment
        | {"torch": "2.13.0", "threads": 1, "cores": 2, "device": "cpu", "system": "Linux"},
    ).to_json()


def write_run(folder: Path, record: dict[str, Any], steps: list[dict[str, Any]] | None = None) -> Path:
    """A run's folder with its record, and its steps if it has any."""
    run = RunFolder(folder / record["address"])
    run.write_record(Record.from_json(record))
    if steps is not None:
        run.steps_file.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return run.path


def make_run(folder: Path, method: str, wrong: tuple[int, ...] = (4, 2, 1), **changes: Any) -> Path:
    """A run with the given number of errors per ten predictions in each domain."""
    steps = steps_of(wrong, teacher=method == "dmse")
    return write_run(folder, record_of(method, steps, **changes), steps)
