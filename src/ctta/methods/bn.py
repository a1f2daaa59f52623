"""BN-adapt: normalise with the statistics of the test batch instead of the stored ones.

Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", 2020;
Nado et al., "Evaluating prediction-time batch normalization for robustness under covariate shift", 2020.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Step
from ctta.errors import NothingToTrain
from ctta.norms import batch_norms, use_batch_statistics
from ctta.options import AnswerOptions, check_bounds
from ctta.registry import register


@register
class BN(Adapter):
    """Normalise with the mean and variance of the test batch instead of the stored ones.

    Nothing is learnt, and nothing is kept from one batch to the next. Models without batch norm are refused.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: The weight of the batch: a layer normalises with alpha * batch + (1 - alpha) * source statistics. Keep 1
            for batches of about 50 images or more. Lower it, say to 0.1, if batches are small or hold few classes. At
            0 the prediction is that of `Source`.
        options: ``window``, ``precision`` and ``invalid``; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.BN(bn_cnn(), alpha=0.5)
        >>> model(torch.rand(8, 3, 16, 16)).shape
        torch.Size([8, 10])
    """

    learns = False
    passes = (1, 0)

    def __init__(self, model: nn.Module, *, alpha: float = 1.0, **options: Unpack[AnswerOptions]) -> None:
        super().__init__(model, **options)
        self.alpha = alpha
        check_bounds(self, alpha=(0, 1))
        layers = batch_norms(self.student)
        if not layers:
            raise NothingToTrain(
                f"BN replaces the statistics of batch norms; {type(self.student.model).__name__} has none. "
                "Use a method that adapts parameters, such as tent or dmse."
            )
        use_batch_statistics(self.student)
        if alpha < 1:
            for layer in (layer for layer in layers if hasattr(layer, "source_mean")):
                layer.momentum = alpha
                layer.register_forward_pre_hook(_blend)
                layer.register_forward_hook(_unblend)
        self.begin(())

    def adapt(self, x: Tensor) -> Step:
        """Predict; the layers take their statistics from the batch itself."""
        return Step(self.student(x).detach())


@torch.no_grad()
def _blend(layer: Any, args: tuple[Tensor, ...]) -> None:
    """Give the layer blended statistics for one pass; those of the batch have the unbiased variance."""
    x = args[0].transpose(0, 1).flatten(1)  # (channels, values)
    layer.running_mean, layer.running_var = layer.source_mean, layer.source_var
    if x.shape[1] > 1:  # a single value has no variance
        var, mean = torch.var_mean(x.to(layer.source_mean.dtype), dim=1)
        layer.running_mean = layer.source_mean.lerp(mean, layer.momentum)
        layer.running_var = layer.source_var.lerp(var, layer.momentum)


def _unblend(layer: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
    layer.running_mean = layer.running_var = None
