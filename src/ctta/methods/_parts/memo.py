"""The batch norm of MEMO, which mixes a little of an image's statistics into those of the source."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ctta.batch_norm import moments_of
from ctta.methods._parts.norm_layers import StatisticsNorm


class BlendedNorm(StatisticsNorm):
    """Batch norm with statistics (1 - alpha) source + alpha image, each image of a batch with its own.

    Args:
        layer: The batch norm to replace.
        alpha: The share of the image.
    """

    def __init__(self, layer: _BatchNorm, alpha: float) -> None:
        super().__init__(layer)
        self.alpha = alpha
        self.together = False

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by blended statistics, which are constants for the gradient."""
        values = math.prod(x.shape[2:]) * (len(x) if self.together else 1)
        if values <= 1:  # a single value has no variance
            return self.normalise(x, self.mean, self.var)
        if self.together:
            mean, var = moments_of(x, self.mean)
            var = var * (values / (values - 1))  # unbiased
            return self.normalise(x, self.mean.lerp(mean, self.alpha), self.var.lerp(var, self.alpha))
        var, mean = torch.var_mean(x.detach().to(self.mean.dtype), list(range(2, x.dim())))  # unbiased
        mean, var = self.mean.lerp(mean, self.alpha), self.var.lerp(var, self.alpha)
        scale = (var + self.eps).rsqrt()
        shift = -mean * scale
        if self.weight is not None and self.bias is not None:
            scale, shift = self.weight * scale, self.weight * shift + self.bias
        shape = (*mean.shape, *[1] * (x.dim() - 2))
        return x * scale.view(shape) + shift.view(shape)


class together:  # noqa: N801, used as a context manager
    """Context in which the images of a batch are copies of one image and share their statistics.

    Args:
        network: The network with the layers.
    """

    def __init__(self, network: nn.Module) -> None:
        self._layers = [layer for layer in network.modules() if isinstance(layer, BlendedNorm)]

    def __enter__(self) -> None:
        for layer in self._layers:
            layer.together = True

    def __exit__(self, *exc: object) -> None:
        for layer in self._layers:
            layer.together = False
