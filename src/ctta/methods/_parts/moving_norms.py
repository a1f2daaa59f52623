"""Methods that only move the statistics of batch norms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import Unpack

from ctta.adapter import Adapter
from ctta.methods._parts.norm_layers import StatisticsNorm, substitute, undone_on_error
from ctta.options import StateOptions


class MovingNorm(StatisticsNorm):
    """Batch norm in eval mode whose statistics can be moved by a pass in train mode.

    Args:
        layer: The batch norm to replace.
    """

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__(layer)
        self.share: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise with the stored statistics; in a pass that moves them, with those of the batch."""
        # A single value has no variance.
        if self.share is None or x.numel() == x.shape[1]:
            return self.normalise(x, self.mean, self.var)
        mean, var = self.mean.clone(), self.var.clone()
        # torch's rule: a batch is normalised by its biased variance, and the unbiased one is stored.
        out = F.batch_norm(x, mean, var, self.weight, self.bias, training=True, momentum=self.share, eps=self.eps)
        self.mean, self.var = mean, var
        return out


class moving:  # noqa: N801, used as a context manager
    """Context in which every pass moves the statistics of some layers towards those of its batch.

    Args:
        layers: The layers.
        share: The share of the batch in the new statistics.
    """

    def __init__(self, layers: Sequence[MovingNorm], share: float) -> None:
        self._layers = layers
        self._share = share

    def __enter__(self) -> None:
        for layer in self._layers:
            layer.share = self._share

    def __exit__(self, *exc: object) -> None:
        for layer in self._layers:
            layer.share = None


class MovesStatistics(Adapter):
    """Base of methods that move the statistics of batch norms and learn nothing else; they move before they predict.

    Args:
        model: The source model, or a `Classifier` around it.
        options: ``window``, ``precision``, ``invalid``, ``seed`` and ``reset_every``; see `Adapter`.
    """

    learns = False
    uses_batch_statistics = False
    predicts_first = False
    trains = "the statistics of batch norms"
    passes = (2, 0)

    def __init__(self, model: nn.Module, **options: Unpack[StateOptions]) -> None:
        super().__init__(model, **options)
        self.require_trainable(substitute(self.student, MovingNorm))

    @torch.no_grad()
    def move_and_predict(self, x: Tensor, images: Tensor, share: float) -> Tensor:
        """Move the statistics towards those of some images and predict for the batch.

        Args:
            x: The batch.
            images: The images whose statistics are taken, such as the batch itself.
            share: Their share in the new statistics.
        """
        layers = [layer for layer in self.student.modules() if isinstance(layer, MovingNorm)]
        with undone_on_error(layers):
            with moving(layers, share):
                self.student(images)
            self.require_finite(torch.stack([(layer.mean + layer.var).sum() for layer in layers]).sum())
            logits = self.student(x)
            self.require_finite(logits.sum())
        return logits
