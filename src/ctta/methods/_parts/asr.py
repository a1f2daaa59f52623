"""What ASR keeps across resets: the mean of the weights, and how important each was."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ctta._adapter.state import OptionalState
from ctta.methods._parts.tensors import flat


class Knowledge(OptionalState):
    """Importance F and mean mu of the weights between resets, averaged over resets; both are None before the first.

    Args:
        parameters: The trained parameters.
    """

    squares: Tensor
    sums: Tensor
    steps: Tensor
    importance: Tensor | None
    centre: Tensor | None

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__()
        zeros = torch.zeros_like(flat(parameters)).detach()
        self.register_buffer("squares", zeros)
        self.register_buffer("sums", zeros.clone())
        self.register_buffer("steps", zeros.new_zeros(()))
        self.register_buffer("importance", None)
        self.register_buffer("centre", None)

    def add(self, squares: Tensor, theta: Tensor) -> None:
        """Add the weights of one step.

        Args:
            squares: The squared gradient of the loss of the base.
            theta: The weights at which it was taken.
        """
        self.squares = self.squares + squares
        self.sums = self.sums + theta
        self.steps = self.steps + 1

    def consolidate(self) -> None:
        """Average the weights since the last reset into F and mu, and restart the sums."""
        importance, centre = self.squares / self.steps, self.sums / self.steps
        self.importance = importance if self.importance is None else 0.9 * self.importance + 0.1 * importance
        self.centre = centre if self.centre is None else 0.9 * self.centre + 0.1 * centre
        self.squares = torch.zeros_like(self.squares)
        self.sums = torch.zeros_like(self.sums)
        self.steps = torch.zeros_like(self.steps)

    def penalty(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return sum F (theta - mu)^2 and its gradient; zeros before the first reset.

        Args:
            theta: The weights.
        """
        if self.importance is None or self.centre is None:
            return theta.new_zeros(()), torch.zeros_like(theta)
        shift = theta - self.centre
        return (self.importance * shift**2).sum(), 2 * self.importance * shift
