"""Stochastic restoration (CoTTA): random weights return to the source after every step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ctta.adapter import Adapter
from ctta.teacher import assign_at_


class RestoresRandomly(Adapter):
    """Base of methods that restore random weights of the student to the source, a share ``restore_p`` of them.

    Args:
        model: The source model, or a `Classifier` around it.
        shared: Options that every method takes; see `Adapter`.
    """

    restore_p: float

    @torch.no_grad()
    def restore_randomly(self) -> None:
        """Eqs. 7 and 8: restore each weight of the student to the source with probability restore_p."""
        for parameter, source in zip(self.trained, self.source_of_trained(), strict=True):
            assign_at_(parameter, source, self.chosen(parameter))

    def chosen(self, parameter: Tensor) -> Tensor:
        """Draw the entries of a parameter to restore, as positions in row-major order.

        Args:
            parameter: A parameter of the student.
        """
        return successes(parameter.numel(), self.restore_p, self.generator)


def successes(trials: int, p: float, generator: torch.Generator) -> Tensor:
    """Draw which of a number of independent trials succeed.

    The gaps between successes are drawn, which takes one random number per success instead of one per trial.
    Differs from the authors' code, which draws a number for every weight.

    Args:
        trials: The number of trials.
        p: The probability of success.
        generator: Draws the gaps.

    Returns:
        The indices of the successful trials, in increasing order.
    """
    if not 0 < p < 1:
        return torch.arange(trials if p == 1 else 0)
    expected = trials * p
    enough = math.ceil(expected + 10 * math.sqrt(expected) + 10)  # ten standard deviations
    at = torch.empty(enough, dtype=torch.float64).geometric_(p, generator=generator).cumsum(0) - 1
    return at[at < trials].long()
