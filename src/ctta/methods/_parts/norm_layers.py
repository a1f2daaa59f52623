"""Layers that replace batch norms and keep their own statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ctta.norms import batch_norms


class StatisticsNorm(nn.Module):
    """A layer that replaces a batch norm and starts with its statistics.

    Args:
        layer: The batch norm to replace. Its weight and bias are used, not copied; its statistics are copied.
    """

    mean: Tensor
    var: Tensor
    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        assert layer.running_mean is not None and layer.running_var is not None
        self.register_buffer("mean", layer.running_mean.clone())
        self.register_buffer("var", layer.running_var.clone())
        self.register_parameter("weight", layer.weight)
        self.register_parameter("bias", layer.bias)
        self.eps = layer.eps

    def normalise(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise with given statistics, one value per channel.

        Args:
            x: Activations (N, C, ...).
            mean: The mean (C,).
            var: The variance (C,).
        """
        return F.batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)


Layer = TypeVar("Layer", bound=StatisticsNorm)


def substitute(network: nn.Module, make: Callable[[_BatchNorm], Layer]) -> list[Layer]:
    """Replace every batch norm that has source statistics.

    Args:
        network: The network, changed in place.
        make: Makes the new layer from the old one.

    Returns:
        The new layers, in order. A layer that is used in several places is replaced by one layer.
    """
    made = {layer: make(layer) for layer in batch_norms(network) if layer.running_mean is not None}
    for parent in list(network.modules()):
        # Not named_children, which leaves out the second name of a child.
        for name, child in parent._modules.items():
            if isinstance(child, _BatchNorm) and child in made:
                parent._modules[name] = made[child]
    return list(made.values())


class undone_on_error:  # noqa: N801, used as a context manager
    """Context that restores the statistics of some layers if an exception is raised.

    It is a class because a generator that is interrupted while it exits would run its last lines when it is garbage
    collected, on a later state.

    Args:
        layers: The layers.
    """

    def __init__(self, layers: Sequence[StatisticsNorm]) -> None:
        self._before = [(layer, layer.mean, layer.var) for layer in layers]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            for layer, mean, var in self._before:
                layer.mean, layer.var = mean, var
