"""Source: the model as it was trained, as a baseline."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ctta.adapter import Adapter, Step
from ctta.classifier import Precision
from ctta.registry import register


@register
class Source(Adapter):
    """Predict with the source model, unchanged.

    The model runs in evaluation mode, with the weights and statistics it was trained with. It is the baseline that
    every other method must beat, and it shows how hard a stream is. There is no ``window``: the stored statistics do
    not depend on the batch, so an image gets the same prediction alone or in a batch.

    Args:
        model: The source model, or a `Classifier` around it.
        precision: "fp32", or "bf16" to run the network under autocast.
        invalid: What to do with NaN or Inf images; see `Adapter`.
    """

    learns = False
    uses_batch_statistics = False
    passes = (1, 0)

    def __init__(
        self,
        model: nn.Module,
        *,
        precision: Precision = "fp32",
        invalid: Literal["raise", "answer"] = "raise",
    ) -> None:
        super().__init__(model, precision=precision, invalid=invalid)
        self.begin(())

    def adapt(self, x: Tensor) -> Step:
        """Predict with the source model."""
        return Step(self.student(x).detach())
