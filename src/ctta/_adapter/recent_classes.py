"""How many classes the recent predictions hold: a number that statistics may follow."""

from __future__ import annotations

import torch
from torch import Tensor

#: A batch of this many images counts as much as all before it.
HORIZON = 16

#: The concentration rises from 0 to 1 while the number of effective classes falls from C / 1.1 to C / 1.5.
FROM, TO = 1.1, 1.5


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
    """Return 0 if recent predictions hold about all classes, and 1 if they hold clearly fewer.

    It is based on the probability that two images have the same predicted class. If all classes are equally frequent,
    this is 1 / C.

    Args:
        recent: The record of recent predictions.
    """
    if recent is None:
        return 0.0
    shares, squares = recent[:-1], recent[-1]
    # An image and itself do not count as a pair.
    same = (shares.square().sum() - squares) / (1 - squares)
    relative = len(shares) * same.item()
    return min(max((relative - FROM) / (TO - FROM), 0.0), 1.0)
