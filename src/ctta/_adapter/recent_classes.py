"""How concentrated recent predictions are on few classes: a number that statistics may follow."""

from __future__ import annotations

import torch
from torch import Tensor

#: A batch of this many images counts as much as all before it.
HORIZON = 16

#: The concentration before the first batch: as if two thirds of the classes were present.
UNKNOWN = 1.5


def with_batch(recent: Tensor | None, logits: Tensor) -> Tensor:
    """Add a batch to the record of recent predictions.

    Args:
        recent: The record: the share of every class, and last the sum of the squared weights of all images. None is
            the start, with equal shares.
        logits: The predictions for the batch (N, C).
    """
    count, classes = logits.shape
    if recent is None:
        recent = torch.full((classes + 1,), 1 / classes, device=logits.device)
        recent[-1] = 0
    shares = torch.bincount(logits.argmax(1), minlength=classes) / count
    weight = count / (count + HORIZON)
    mixed = (1 - weight) * recent[:-1] + weight * shares
    squares = (1 - weight) ** 2 * recent[-1:] + weight**2 / count
    return torch.cat([mixed, squares])


def concentration(recent: Tensor | None) -> float:
    """Return how much more often two images have the same predicted class than if all classes were equally frequent.

    It is 1 if all classes are equally frequent, and the number of classes if there is only one. If k of C classes are
    equally frequent and the others are missing, it is C / k.

    Args:
        recent: The record of recent predictions. Before the first batch nothing is known, and few classes are assumed.
    """
    if recent is None:
        return UNKNOWN
    shares, squares = recent[:-1], recent[-1]
    # An image and itself do not count as a pair.
    same = (shares.square().sum() - squares) / (1 - squares)
    return max(len(shares) * same.item(), 0.0)
