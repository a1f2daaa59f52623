"""Contract points 14 and 16: double precision, and the error on clean source images."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ctta.errors import ContractBroken
from ctta.methods.source import Source
from ctta.testing.compare import difference
from ctta.testing.subject import Subject, run
from ctta.testing.task import labelled_images, trained

_SIZE = 32
_COUNT = 20 * _SIZE


def double_precision(subject: Subject) -> None:
    """14: a float64 model runs in float64, repeatably, and float32 agrees within rounding.

    Agreement with reference values belongs to each method's own tests.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "14 double_precision"
    batches = subject.batches(3)
    single = run(subject.build(), batches)
    doubles = [run(subject.make(subject.source().double()), [x.double() for x in batches]) for _ in range(2)]
    for logits in doubles[0]:
        if logits.dtype != torch.float64:
            raise ContractBroken(point, "float64 logits from a float64 model", str(logits.dtype))
    if found := difference(doubles[0], doubles[1], "logits"):
        raise ContractBroken(point, "the same float64 logits twice", found)
    for i, (a, b) in enumerate(zip(single, doubles[0], strict=True)):
        # The first prediction uses the source weights; after that the optimizer amplifies rounding errors.
        share = 1e-3 if i == 0 else 5e-2
        gap, scale = (a - b).abs().max().item(), b.abs().max().item()
        if gap > share * scale:
            raise ContractBroken(point, f"float32 within {share:g} of float64 at step {i}", f"{gap:.3g} of {scale:.3g}")


def clean_stream(subject: Subject) -> None:
    """16: on clean source images the error stays within the margin, in percentage points, of the source model's.

    Uses the given model, images and labels, or else a tiny network trained on synthetic images.

    Args:
        subject: The adapter under test, with its model and images.
    """
    if subject.images is not None and subject.labels is not None:
        model, x, y = subject.source(), subject.images, subject.labels
    else:
        model, (x, y) = trained(), labelled_images(_COUNT, seed=3)
    source = _error(Source(copy.deepcopy(model)), x, y)
    error = _error(subject.make(model), x, y)
    if error > source + subject.margin:
        raise ContractBroken(
            "16 clean_stream",
            f"an error of at most {source:.1f} + {subject.margin:g} % on clean images",
            f"{error:.1f} %",
        )


def _error(adapter: torch.nn.Module, x: Tensor, y: Tensor) -> float:
    incorrect: float = sum(
        float((adapter(images).argmax(1) != labels).sum())
        for images, labels in zip(torch.split(x, _SIZE), torch.split(y, _SIZE), strict=True)
    )
    return 100 * incorrect / len(y)
