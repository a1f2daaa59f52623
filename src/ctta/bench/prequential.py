"""The loop: predict, score, learn."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ctta._checks.sequences import names_of
from ctta.adapter import Adapter, Step
from ctta.bench.progress import Progress
from ctta.bench.scores import Scores
from ctta.bench.steps import ENTROPY_BINS, StepFacts
from ctta.datasets.convert import check_classes
from ctta.errors import EmptyStream, MethodError, ModelError, ParameterError
from ctta.functional import entropy
from ctta.guarded import Guarded
from ctta.protocol import Resets
from ctta.streams.batch import Batch
from ctta.streams.incoming import batches_of
from ctta.streams.stream import Stream

__all__ = ["Progress", "Report", "evaluate", "scored"]

logger = logging.getLogger("ctta")

#: Key of a step's log: the images of a batch that was too small to learn from.
TOO_SMALL = "too_small"
#: Key of a step's log: images whose logits are not finite. They count as wrong.
NOT_FINITE = "not_finite"
#: Keys of a step's log that the loop itself writes.
_OWN = frozenset(
    ("index", "domain", "severity", "images", "wrong", "error", "loss", "seconds", "entropy_right", "entropy_wrong")
)


@dataclass(frozen=True)
class Report:
    """Results of a method on a stream.

    Args:
        method: Name of the method; "guarded tent" if it has a guard.
        settings: Its constructor arguments, defaults included.
        errors: Percent incorrect in each domain, in order of first appearance; lower is better.
        mean: Unweighted mean of the errors over domains.
        steps: What each step logged.
        images: Number of images.
        images_per_second: Images divided by ``seconds``.
        seconds: Seconds spent inside the adapter, without the time to prepare the images.
        not_learnt: Images in batches too small to learn from.
    """

    method: str
    settings: Mapping[str, object]
    errors: dict[str, float]
    mean: float
    steps: tuple[StepFacts, ...]
    images: int
    images_per_second: float
    seconds: float
    not_learnt: int = 0

    def __repr__(self) -> str:
        """Summarise the report in one line; ``errors``, ``settings`` and ``steps`` have the rest."""
        domains = f"{len(self.errors)} domain{'s' if len(self.errors) != 1 else ''}"
        return f"Report({self.method}: {self.mean:.2f} % mean error, {domains}, {self.images:,} images)"

    def to_json(self) -> str:
        """The report as JSON; a setting that is not a plain value is written as its repr."""
        return json.dumps(asdict(self), default=repr)


def evaluate(
    adapter: Adapter, stream: Iterable[Any], *, learn: bool = True, progress: Progress | None = None
) -> Report:
    """Run a method through a stream and score the predictions it makes before it learns from each batch.

    A batch that is too small for the method's statistics, such as one image left over at the end, is scored but not
    learnt from; ``Report.not_learnt`` counts its images.

    Args:
        adapter: The method around its source model.
        stream: Batches of a `Stream`, or any iterable of pairs (images, labels), such as a DataLoader. Images may be
            torch or numpy, uint8 or floats in [0, 1], channels first or last.
        learn: Whether to learn. If False, the adapter is left unchanged.
        progress: Called with every batch and its log.

    Raises:
        EmptyStream: If the stream has no batch.
        LabelError: If a label is not a class of the model.
    """
    if not isinstance(adapter, Adapter):
        raise ParameterError(
            f"evaluate takes an adapter, such as ctta.Source(model) or ctta.DMSE(model). Got {type(adapter).__name__}."
        )
    steps: list[StepFacts] = []
    for batch, log in scored(adapter, stream, learn=learn):
        steps.append(log)
        if progress is not None:
            progress(batch, log)
    if not steps:
        raise EmptyStream("The stream gave no batches. A generator can be read only once: make a new one.")
    seconds = sum(step["seconds"] for step in steps)
    scores = Scores.of_steps(steps)
    return Report(
        method=_name(adapter),
        settings=adapter.settings,
        errors=scores.errors,
        mean=scores.mean,
        steps=tuple(steps),
        images=scores.images,
        images_per_second=scores.images / seconds if seconds else 0.0,
        seconds=seconds,
        not_learnt=sum(int(step.get(TOO_SMALL, 0)) for step in steps),
    )


def scored(
    adapter: Adapter,
    stream: Iterable[Any],
    *,
    learn: bool = True,
    rest_on: str | Collection[str] = (),
    resets: Resets = "never",
) -> Iterator[tuple[Batch, StepFacts]]:
    """Predict, score and learn batch by batch, and yield every batch with the log of its step.

    Args:
        adapter: The method around its source model.
        stream: As for `evaluate`.
        learn: Whether to learn.
        rest_on: Domains in which the method predicts without learning.
        resets: When the adapter is reset; "shift" needs a `Stream`, which knows where its segments begin.
    """
    shifts = _shifts(stream, resets)
    resting = names_of(rest_on, "rest_on")
    classes = _classes(adapter)
    if isinstance(stream, Stream) and classes is not None:
        # All labels are known in advance, so check them now: an invalid one must not end a run after hours.
        for segment in stream.segments:
            check_classes(segment.images.y, classes)
    largest = _batch_size(stream)
    for batch in stream if isinstance(stream, Stream) else batches_of(stream):
        if classes is not None:
            check_classes(batch.y, classes)
        largest = max(largest, len(batch))
        if resets == "batch" or batch.index in shifts:
            _reset(adapter)
        begin = time.perf_counter()
        step = _step(adapter, batch.x, learn=learn and batch.domain not in resting, leftover=len(batch) < largest)
        took = time.perf_counter() - begin
        logits = step.logits.float().cpu()
        if classes is None:
            check_classes(batch.y, logits.shape[1])
        finite = logits.isfinite().all(1)
        right = (logits.argmax(1) == batch.y.cpu()) & finite
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
                "entropy_wrong": _histogram(logits[~right & finite]),
                **({} if finite.all() else {NOT_FINITE: int((~finite).sum())}),
                **_checked_log(adapter, step),
            },
        )


def _checked_log(adapter: Adapter, step: Step) -> StepFacts:
    """The numbers that the method logs; none may stand in for the score, and all must be plain numbers."""
    for name, value in step.log.items():
        if name in _OWN or name == NOT_FINITE:
            raise MethodError(
                f"{type(adapter).__name__} logs {name!r}, a name that is used for the score of a step. Log the number "
                "under another name."
            )
        if not isinstance(value, (int, float)):
            raise MethodError(
                f"{type(adapter).__name__} logs {name!r} as {type(value).__name__}; a step logs plain numbers. Convert "
                "a tensor with .item()."
            )
    return dict(step.log)


def _name(adapter: Adapter) -> str:
    """The name of the method, marked if it has a guard."""
    if isinstance(adapter, Guarded):
        return f"guarded {_name(adapter.inner)}"
    return type(adapter).__name__.lower()


def _shifts(stream: object, resets: Resets) -> frozenset[int]:
    """The steps before which the adapter is reset because a segment begins."""
    if resets != "shift":
        return frozenset()
    if not isinstance(stream, Stream):
        raise ParameterError(f"Only a Stream says where a domain ends. Got {type(stream).__name__} to reset at shifts.")
    return stream.shifts


def _reset(adapter: Adapter) -> None:
    """Reset to the source, but keep the count of skipped steps: a record counts them over the whole run."""
    skipped = adapter.skipped
    adapter.reset()
    adapter.skipped = skipped


def _step(adapter: Adapter, x: Tensor, *, learn: bool, leftover: bool) -> Step:
    """Predict for a batch and, if requested, learn from it; a leftover too small to learn from is only predicted."""
    too_small = leftover and len(x) < adapter.smallest_batch and adapter.window is None
    if learn and not too_small:
        return adapter.step(x)
    logits = adapter.predict(x, allow_small=too_small)
    if not too_small or not learn:
        return Step(logits)
    logger.warning("a batch of %d was predicted and not learnt from: it is too small", len(x))
    return Step(logits, log={TOO_SMALL: float(len(x))})


def _classes(adapter: Adapter) -> int | None:
    """The number of classes of the model; None if only its logits show it."""
    try:
        return adapter.student.num_classes
    except ModelError:
        return None


def _batch_size(stream: object) -> int:
    """The size of a full batch of a Stream or DataLoader; 0 if it is unknown."""
    size = getattr(stream, "batch_size", None)
    return size if isinstance(size, int) else 0


def _histogram(logits: Tensor) -> list[int]:
    """The number of predictions with an entropy in each bin."""
    # The prediction for a rejected image, and rounding, can lie just outside the range.
    h = entropy(logits).clamp(0, math.log(logits.shape[1]))
    return [int(n) for n in torch.histc(h, ENTROPY_BINS, 0, math.log(logits.shape[1]))]
