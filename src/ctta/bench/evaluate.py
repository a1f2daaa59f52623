"""The loop: predict, score, learn."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ctta.adapter import Adapter, Step
from ctta.functional import entropy
from ctta.streams.batch import Batch

Progress = Callable[[Batch, dict[str, Any]], None]

#: Bins of the histograms of entropy in a step's log, of equal width from 0 to ln C.
ENTROPY_BINS = 20


@dataclass(frozen=True)
class Report:
    """How a method did on a stream: errors in percent, lower is better, and what every step logged."""

    method: str
    settings: dict[str, Any]
    errors: dict[str, float]  # by domain, in order of first appearance
    mean: float  # over domains, whatever their sizes
    steps: tuple[dict[str, Any], ...]
    images: int
    images_per_second: float
    seconds: float  # inside the adapter; making the images is not counted

    def to_json(self) -> str:
        """The report as JSON; a setting that is not a plain value is written as its repr."""
        return json.dumps(asdict(self), default=repr)


def evaluate(
    adapter: Adapter, stream: Iterable[Batch], *, learn: bool = True, progress: Progress | None = None
) -> Report:
    """Run a method through a stream; what counts is the answer it gives before it learns from the batch.

    With ``learn=False`` it answers only, and is afterwards as it was. ``progress`` is told every batch and its log.
    """
    wrong: dict[str, int] = {}
    seen: dict[str, int] = {}
    steps: list[dict[str, Any]] = []
    for batch, log in scored(adapter, stream, learn=learn):
        wrong[batch.domain] = wrong.get(batch.domain, 0) + log["wrong"]
        seen[batch.domain] = seen.get(batch.domain, 0) + len(batch)
        steps.append(log)
        if progress is not None:
            progress(batch, log)
    seconds = sum(step["seconds"] for step in steps)
    errors = {domain: 100 * wrong[domain] / seen[domain] for domain in seen}
    images = sum(seen.values())
    return Report(
        method=type(adapter).__name__.lower(),
        settings=adapter.settings,
        errors=errors,
        mean=sum(errors.values()) / len(errors) if errors else float("nan"),
        steps=tuple(steps),
        images=images,
        images_per_second=images / seconds if seconds else 0.0,
        seconds=seconds,
    )


def scored(
    adapter: Adapter, stream: Iterable[Batch], *, learn: bool = True, rest_on: Container[str] = ()
) -> Iterator[tuple[Batch, dict[str, Any]]]:
    """The prequential loop itself: every batch with what the step on it logged.

    In the domains of ``rest_on`` the method answers without learning.
    """
    for batch in stream:
        begin = time.perf_counter()
        learning = learn and batch.domain not in rest_on
        step = adapter.step(batch.x) if learning else Step(adapter.predict(batch.x))
        took = time.perf_counter() - begin
        logits = step.logits.float().cpu()
        right = logits.argmax(1) == batch.y.cpu()
        wrong = int((~right).sum())
        yield (
            batch,
            {
                "index": batch.index,
                "domain": batch.domain,
                "severity": batch.severity,
                "images": len(batch),
                "wrong": wrong,
                "error": 100 * wrong / len(batch),
                "loss": step.loss,
                "seconds": took,
                "entropy_right": _histogram(logits[right]),
                "entropy_wrong": _histogram(logits[~right]),
                **step.log,
            },
        )


def _histogram(logits: Tensor) -> list[int]:
    """How many answers have an entropy in each bin."""
    # An answer to an image that was refused, and rounding, may lie a hair beyond the ends.
    h = entropy(logits).clamp(0, math.log(logits.shape[1]))
    return [int(n) for n in torch.histc(h, ENTROPY_BINS, 0, math.log(logits.shape[1]))]
