"""RoTTA's two devices: batch norms with slow statistics, and the category-balanced memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ctta.errors import ImageShape
from ctta.norms import batch_norms
from ctta.state import LazyBuffers


class RobustBN(nn.Module):
    """Batch norm whose statistics are a moving average that follows the batch while ``updating`` (Eqs. 2, 3)."""

    mean: Tensor
    var: Tensor

    def __init__(self, layer: _BatchNorm, alpha: float) -> None:
        super().__init__()
        assert layer.running_mean is not None and layer.running_var is not None
        self.register_buffer("mean", layer.running_mean.clone())
        self.register_buffer("var", layer.running_var.clone())
        self.weight, self.bias = layer.weight, layer.bias
        self.eps, self.alpha, self.updating = layer.eps, alpha, False

    def forward(self, x: Tensor) -> Tensor:
        """Normalise with the stored statistics, or with new ones through whose batch part the gradient flows."""
        mean, var = self.mean, self.var
        if self.updating:
            batch_var, batch_mean = torch.var_mean(x, dim=[0, *range(2, x.dim())], unbiased=False)
            mean = (1 - self.alpha) * mean + self.alpha * batch_mean
            var = (1 - self.alpha) * var + self.alpha * batch_var
            self.mean, self.var = mean.detach(), var.detach()
        shape = (1, -1, *[1] * (x.dim() - 2))
        scale = self.weight.to(mean.dtype) * (var + self.eps).rsqrt()
        return x * scale.view(shape) + (self.bias - mean * scale).view(shape)


def replace_batch_norms(module: nn.Module, alpha: float) -> list[RobustBN]:
    """Put a RobustBN in the place of every affine batch norm with source statistics, and list them."""
    wanted = {id(layer) for layer in batch_norms(module) if layer.affine and layer.running_mean is not None}
    made = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in wanted and isinstance(child, _BatchNorm):
                layer = RobustBN(child, alpha)
                setattr(parent, name, layer)
                made.append(layer)
    return made


class updating:  # noqa: N801, used as a context manager
    """Inside, the RobustBN layers of these modules follow their batches; an exception takes that back.

    A class, because a generator interrupted on its way out would run its last lines when it is collected, on a later
    state.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self._layers = [layer for module in modules for layer in module.modules() if isinstance(layer, RobustBN)]
        self._before = [(layer.mean, layer.var) for layer in self._layers]

    def __enter__(self) -> None:
        for layer in self._layers:
            layer.updating = True

    def __exit__(self, kind: object, *exc: object) -> None:
        for layer, (mean, var) in zip(self._layers, self._before, strict=True):
            layer.updating = False
            if kind is not None:
                layer.mean, layer.var = mean, var


class Memory(LazyBuffers):
    """Category-balanced sampling with timeliness and uncertainty (Sec. 3.3): at most ``size`` images in slots."""

    images: Tensor | None
    offers: Tensor
    label: Tensor
    uncertainty: Tensor | None
    age: Tensor
    serial: Tensor

    def __init__(self, size: int, *, lambda_t: float, lambda_u: float) -> None:
        super().__init__()
        self.size, self.lambda_t, self.lambda_u = size, lambda_t, lambda_u
        self.register_buffer("images", None)
        self.register_buffer("offers", torch.zeros((), dtype=torch.long))
        self.register_buffer("label", torch.full((size,), -1))  # -1: an empty slot
        self.register_buffer("uncertainty", None)
        self.register_buffer("age", torch.zeros(size, dtype=torch.long))
        self.register_buffer("serial", torch.zeros(size, dtype=torch.long))

    def refuse_other_size(self, x: Tensor) -> None:
        """Refuse images (N, C, H, W) that cannot be held beside the ones in memory."""
        if self.images is not None and self.images.shape[1:] != x.shape[1:]:
            raise ImageShape(
                f"RoTTA learns from a memory of images of one size; it holds {tuple(self.images.shape[1:])} and got "
                f"{tuple(x.shape[1:])}. Resize them, or reset() the adapter."
            )

    def offer(self, image: Tensor, label: int, uncertainty: float, *, classes: int) -> None:
        """Take an image in, in the place of a worse one if need be; then every held image is one older."""
        self.offers += 1
        slot = self._slot_for(label, self._score(0, uncertainty, classes), classes)
        if slot is not None:
            if self.images is None or self.uncertainty is None:
                self.images, self.uncertainty = image.new_zeros(self.size, *image.shape), image.new_zeros(self.size)
            self.images[slot] = image
            self.label[slot], self.uncertainty[slot], self.age[slot] = label, uncertainty, 0
            self.serial[slot] = self.serial.max() + 1
        self.age[self.label >= 0] += 1

    def content(self) -> tuple[Tensor, Tensor]:
        """The held images, class by class and oldest first, and their age in units of the capacity."""
        assert self.images is not None
        slots = self._ordered(range(self.size))
        return self.images[slots], self.age[slots] / self.size

    def _slot_for(self, label: int, score: float, classes: int) -> int | None:
        """Where a newcomer goes: an empty slot, the worst of its class or of the fullest classes, or nowhere."""
        counts = torch.bincount(self.label[self.label >= 0], minlength=classes)
        if counts[label] >= self.size / classes:
            rivals = [label]
        elif int(counts.sum()) < self.size:
            return int((self.label < 0).nonzero()[0])
        else:
            rivals = (counts == counts.max()).nonzero().flatten().tolist()
        worst, worst_score = None, -math.inf
        assert self.uncertainty is not None
        for slot in self._ordered(slot for slot, held in enumerate(self.label.tolist()) if held in rivals):
            held_score = self._score(int(self.age[slot]), float(self.uncertainty[slot]), classes)
            if held_score >= worst_score:
                worst, worst_score = slot, held_score
        return worst if worst_score > score else None

    def _ordered(self, slots: Iterator[int] | range) -> list[int]:
        label, serial = self.label.tolist(), self.serial.tolist()
        return sorted((slot for slot in slots if label[slot] >= 0), key=lambda slot: (label[slot], serial[slot]))

    def _score(self, age: int, uncertainty: float, classes: int) -> float:
        """Eq. 6: how much a sample deserves to go."""
        timeliness = 1 / (1 + math.exp(-age / self.size))
        return self.lambda_t * timeliness + self.lambda_u * uncertainty / math.log(classes)
