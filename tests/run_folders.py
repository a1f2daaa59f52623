"""Folders of run records as `ctta run` leaves them, with numbers chosen by the test."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from pathlib import Path
from typing import Any

from ctta.bench.folder import RunFolder
from ctta.bench.record import FORMAT, Record
from ctta.version import __version__

DOMAINS = ("gaussian_noise", "fog", "contrast")


def steps_of(wrong: tuple[int, ...], domains: tuple[str, ...] = DOMAINS, *, teacher: bool = False) -> list[Any]:
    """Four steps of ten images per domain with so many wrong in each; entropy falls along the stream."""
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


def record_of(method: str, steps: list[dict[str, Any]], *, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A record as JSON that its steps add up to; ``changes`` are changes of its specification."""
    counts: dict[str, list[int]] = {}
    for step in steps:
        of = counts.setdefault(step["domain"], [0, 0])
        of[0] += step["images"]
        of[1] += step["wrong"]
    errors = {domain: 100 * wrong / images for domain, (images, wrong) in counts.items()}
    spec = {
        "method": method,
        "settings": {},
        "model": {"name": "resnet20", "digest": "07ae", "mean": [0.5], "std": [0.2]},
        "data": {"name": "cifar10-c", "origin": "generated", "digest": "7bee", "corruption_seed": seed},
        "protocol": {"name": "continual"},
        "corruptions": list(counts),
        "severity": 5,
        "images": 40,
        "batch_size": 10,
        "seed": seed,
        "learn": True,
        "source_data": None,
    } | changes
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return {
        "format": FORMAT,
        "address": hashlib.sha256(text.encode()).hexdigest()[:20],
        "spec": copy.deepcopy(spec),
        "settings": {"lr": 0.001, "e_min": 0.2},
        "source_free": True,
        "metric": "error, percent of answers that are wrong",
        "direction": "lower is better",
        "normalisation": "inside Classifier",
        "order": "shuffled",
        "scored": "the answer given before learning from the batch",
        "passes": [1, 0 if method in ("source", "bn") else 1],
        "errors": errors,
        "mean": math.fsum(errors.values()) / len(errors),
        "counts": {domain: {"images": n, "wrong": wrong} for domain, (n, wrong) in counts.items()},
        "images": 10 * len(steps),
        "images_per_second": 100.0,
        "seconds": 0.1 * len(steps),
        "peak_memory": 123_000_000,
        "skipped": 0,
        "environment": {
            "ctta": __version__,
            "torch": "2.13.0",
            "threads": 1,
            "cores": 2,
            "device": "cpu",
            "system": "Linux",
        },
        "steps": "steps.jsonl",
        "command": f"ctta run {method} cifar10-c --seed {seed}",
        "complete": True,
    }


def write_run(folder: Path, record: dict[str, Any], steps: list[dict[str, Any]] | None = None) -> Path:
    """A run's folder with its record, and its steps if it has any."""
    run = RunFolder(folder / record["address"])
    run.write_record(Record.from_json(record))
    if steps is not None:
        run.steps_file.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return run.path


def make_run(folder: Path, method: str, wrong: tuple[int, ...] = (4, 2, 1), **changes: Any) -> Path:
    """A run with so many of ten answers wrong in each domain."""
    steps = steps_of(wrong, teacher=method == "dmse")
    return write_run(folder, record_of(method, steps, **changes), steps)
