"""Tent: minimise the entropy of the prediction by the norm layers' weights and biases.

Wang et al., "Tent: Fully test-time adaptation by entropy minimization", ICLR 2021. Continual: never reset.
"""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.functional import entropy
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions
from ctta.recipes import per_dataset
from ctta.registry import register


@register
class Tent(Adapter):
    """Entropy minimisation on the norm layers."""

    trains = "the weights and biases of normalisation layers"
    passes = (1, 1)
    recipes = per_dataset()

    def __init__(self, model: nn.Module, **shared: Unpack[SharedOptions]) -> None:
        super().__init__(model, **shared)
        use_batch_statistics(self.student)
        self.begin(norm_affine(self.student))

    def adapt(self, x: Tensor) -> Learning:
        """One step on the mean entropy of the batch."""
        logits = self.student(x)
        yield logits.detach()
        loss = entropy(logits).mean()
        self.descend(loss)
        return Step(logits.detach(), loss.item())
