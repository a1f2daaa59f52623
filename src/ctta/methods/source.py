"""Source: the model as it was trained, for comparison."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ctta.adapter import Adapter, Step
from ctta.classifier import Precision
from ctta.registry import register


@register
class Source(Adapter):
    """Answers with the source model and its stored statistics; learns nothing."""

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
        """The student is the source."""
        return Step(self.student(x).detach())
