"""Orders in which the classes come in clumps: a Dirichlet over time slots."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from ctta.errors import ParameterError

#: How evenly a class is spread over a domain by default; towards 0 all its images come at once.
CONCENTRATION: Final = 0.1


def check_concentration(concentration: float) -> None:
    """Refuse a concentration that is not a finite number above 0.

    Args:
        concentration: Parameter of the Dirichlet distribution.
    """
    if not isinstance(concentration, (int, float)) or not 0 < concentration < math.inf:
        raise ParameterError(
            f"The 'concentration' of a correlated stream must be a finite number above 0. Got {concentration!r}."
        )


def dirichlet_weights(count: int, concentration: float, generator: torch.Generator) -> Tensor:
    """Draw positive weights (count,) whose shares of their sum have a symmetric Dirichlet distribution.

    Args:
        count: Number of weights.
        concentration: Parameter of the Dirichlet distribution.
        generator: Draws the weights.
    """
    gamma = torch._standard_gamma(torch.full((count,), concentration, dtype=torch.float64), generator)
    # Draws with a small concentration underflow; without a tiny number added, all of them could be 0.
    return gamma + 1e-300


def in_clumps(
    y: Tensor, concentration: float, generator: torch.Generator, *, most: int | None = None, like_petta: bool = False
) -> Tensor:
    """Return the positions of labels in an order in which the classes come in clumps.

    Args:
        y: The labels.
        concentration: Parameter of the Dirichlet distribution: how evenly a class is distributed over time slots.
        generator: Draws the shares.
        most: The largest number of time slots; None uses one for each class that occurs.
        like_petta: Do as PeTTA's authors: show the classes of a slot in random order, not in that of their labels, and
            round the ends of the shares down, not to the nearest.
    """
    classes = torch.unique(y)
    slots: list[list[Tensor]] = [[] for _ in range(min(len(classes), most or len(classes)))]
    for label in classes:
        mine = (y == label).nonzero().flatten()
        weights = dirichlet_weights(len(slots), concentration, generator)
        ends = (weights / weights.sum()).cumsum(0)[:-1] * len(mine)
        cuts = (ends if like_petta else ends.round()).long().clamp(0, len(mine))
        for slot, part in zip(slots, torch.tensor_split(mine, cuts.tolist()), strict=True):
            slot.append(part)
    if like_petta:
        slots = [[slot[i] for i in torch.randperm(len(slot), generator=generator).tolist()] for slot in slots]
    return torch.cat([part for slot in slots for part in slot])
