"""Trio with one part left out, to measure what the part is worth.

They are run by name, such as `ctta run benchmarks/parts_of_trio.py:TwoPredict cifar10-c`. Parts that are arguments
need no class: `--set mirror=False`, `--set view=None`, `--set statistics=batch`, and, with batches of 16,
`--set batch_size=16`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

import ctta
from ctta.adapter import Learning, Step
from ctta.augment import View
from ctta.options import SharedOptions
from ctta.projection import Projection


class TwoPredict(ctta.Trio):
    """Trio that learns from the view, but predicts with the student and the teacher only."""

    def adapt(self, x: Tensor) -> Learning:
        """Predict with two passes, then learn as Trio does."""
        learning = super().adapt(x)
        next(learning)
        prediction = self.combine(self._student_saw, self._teacher_saw)
        yield prediction
        step: Step = yield from learning
        return replace(step, logits=prediction)

    def answer(self, x: Tensor) -> Tensor:
        """Predict with two passes."""
        return self.combine(self.student(x), self.look(x))

    def student_passes(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """As Trio's; keep the student's logits for the prediction."""
        passes = super().student_passes(x)
        self._student_saw = passes[0][0].detach()
        return passes

    @torch.no_grad()
    def look(self, x: Tensor) -> Tensor:
        """As Trio's; keep the teacher's logits for the prediction."""
        self._teacher_saw = super().look(x)
        return self._teacher_saw


class ColourView(ctta.Trio):
    """Trio with the view of DMSE and CoTTA, which changes colours and adds noise."""

    def __init__(self, model: nn.Module, *, projection: Projection = "mlp", **shared: Unpack[SharedOptions]) -> None:
        super().__init__(model, projection=projection, view=View(), **shared)
