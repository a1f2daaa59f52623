"""BNEMA: move the stored statistics of batch norms towards each batch, then predict with them."""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Learning, Step
from ctta.methods._parts.moving_norms import MovesStatistics
from ctta.options import StateOptions, check_bounds
from ctta.registry import register


@register
class BNEMA(MovesStatistics):
    """Move the stored mean and variance of batch norms towards each batch, then predict with them.

    Public benchmarks call it BN-EMA. The statistics follow the stream as they do in training, and remember about 1 /
    alpha batches. They are therefore less noisy than those of a single batch, on which `BN` relies, and small batches
    work. The prediction for a batch is made after the statistics were updated with it. No label, gradient or optimizer
    is needed.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: The share of the batch in the new statistics. At 0 the prediction is that of `Source`.
        options: ``window``, ``precision``, ``invalid``, ``seed`` and ``reset_every``; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.BNEMA(bn_cnn(), alpha=0.2)
        >>> model(torch.rand(8, 3, 16, 16)).shape
        torch.Size([8, 10])
    """

    def __init__(self, model: nn.Module, *, alpha: float = 0.1, **options: Unpack[StateOptions]) -> None:
        super().__init__(model, **options)
        self.alpha = alpha
        check_bounds(self, alpha=(0, 1))
        self.begin(())

    def adapt(self, x: Tensor) -> Learning:
        """Update the statistics with the batch, then predict."""
        logits = self.move_and_predict(x, x, self.alpha)
        yield logits
        return Step(logits)
