"""The two parts of RoTTA: batch norms with slow statistics, and the class-balanced memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ctta._adapter.state import OptionalState
from ctta.batch_norm import normalise_exactly, take_back
from ctta.errors import ImageShape
from ctta.norms import batch_norms
from ctta.statistics import Moments


class RobustBN(nn.Module):
    """Batch norm whose statistics are a moving average, updated from the batch while ``updating`` (Eqs. 2, 3).

    Args:
        layer: The batch norm to replace; its weight and bias are used, not copied.
        alpha: The share of the batch in each update.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, layer: _BatchNorm, alpha: float) -> None:
        super().__init__()
        assert layer.running_mean is not None and layer.running_var is not None
        self.register_buffer("mean", layer.running_mean.clone())
        self.register_buffer("var", layer.running_var.clone())
        self.weight = layer.weight
        self.bias = layer.bias
        self.eps = layer.eps
        self.alpha = alpha
        self.updating = False

    def forward(self, x: Tensor) -> Tensor:
        """Normalise with the stored statistics; while updating, with new ones, through which gradients flow."""
        if self.updating:
            return normalise_exactly(x, self._update, self.weight, self.bias, self.eps)
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, training=False, eps=self.eps)

    def _update(self, batch: Moments) -> Moments:
        return _moved(self, batch)


def _moved(layer: Any, batch: Moments) -> Moments:
    """Move a layer's statistics towards those of the batch."""
    new = Moments(layer.mean, layer.var).towards(batch, layer.alpha)
    layer.mean, layer.var = new.mean.detach(), new.var.detach()
    return new


def _make_robust(layer: _BatchNorm, alpha: float) -> None:
    """Give a batch norm of another library, such as one with an activation inside, the statistics of a RobustBN."""
    assert layer.running_mean is not None and layer.running_var is not None
    layer.register_buffer("mean", layer.running_mean.clone())
    layer.register_buffer("var", layer.running_var.clone())
    layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    layer.track_running_stats = False  # or torch expects the counter when a state is loaded
    vars(layer).update(alpha=alpha, updating=False)
    layer.register_forward_pre_hook(_lend)
    layer.register_forward_hook(take_back)


def _lend(layer: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, *rest = args
    if not layer.updating:
        layer.running_mean, layer.running_var = layer.mean, layer.var
        return args
    # Gradients flow through statistics only outside the layer, which then gets normalised values.
    layer.running_mean, layer.running_var = torch.zeros_like(layer.mean), torch.ones_like(layer.var) - layer.eps
    return (normalise_exactly(x, lambda batch: _moved(layer, batch), None, None, layer.eps), *rest)


def replace_batch_norms(module: nn.Module, alpha: float) -> list[nn.Module]:
    """Turn every affine batch norm with source statistics into a RobustBN, or the like if its class is not torch's.

    Args:
        module: The network, changed in place.
        alpha: The share of the batch in each update of the statistics.

    Returns:
        The layers.
    """
    wanted = {id(layer) for layer in batch_norms(module) if layer.affine and layer.running_mean is not None}
    made: list[nn.Module] = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in wanted and isinstance(child, _BatchNorm):
                layer: nn.Module = child
                if type(child).forward is _BatchNorm.forward:
                    layer = RobustBN(child, alpha)
                    setattr(parent, name, layer)
                elif "updating" not in vars(child):  # not yet visited as a child of another module
                    _make_robust(child, alpha)
                made.append(layer)
    return made


class updating:  # noqa: N801, used as a context manager
    """Context in which RobustBN layers update their statistics; an exception undoes the updates.

    It is a class because a generator that is interrupted while it exits would run its last lines when it is garbage
    collected, on a later state.

    Args:
        modules: Networks whose layers are updated.
    """

    def __init__(self, *modules: nn.Module) -> None:
        found = [layer for module in modules for layer in module.modules() if "updating" in vars(layer)]
        self._layers: list[Any] = found
        self._before = [(layer.mean, layer.var) for layer in self._layers]

    def __enter__(self) -> None:
        for layer in self._layers:
            layer.updating = True

    def __exit__(self, kind: object, *exc: object) -> None:
        for layer, (mean, var) in zip(self._layers, self._before, strict=True):
            layer.updating = False
            if kind is not None:
                layer.mean, layer.var = mean, var


class Memory(OptionalState):
    """A memory balanced over classes, which prefers recent and confident samples (Sec. 3.3).

    Args:
        size: The maximum number of images to hold.
        lambda_t: Weight of the age when a sample has to be removed.
        lambda_u: Weight of the uncertainty when a sample has to be removed.
    """

    images: Tensor | None
    offers: Tensor
    label: Tensor
    uncertainty: Tensor | None
    age: Tensor
    serial: Tensor

    def __init__(self, size: int, *, lambda_t: float, lambda_u: float) -> None:
        super().__init__()
        self.size = size
        self.lambda_t = lambda_t
        self.lambda_u = lambda_u
        self.register_buffer("images", None)
        self.register_buffer("offers", torch.zeros((), dtype=torch.long))
        self.register_buffer("label", torch.full((size,), -1))  # -1: an empty slot
        self.register_buffer("uncertainty", None)
        self.register_buffer("age", torch.zeros(size, dtype=torch.long))
        self.register_buffer("serial", torch.zeros(size, dtype=torch.long))

    def refuse_other_size(self, x: Tensor) -> None:
        """Raise ImageShape for images whose size differs from that of the images in memory.

        Args:
            x: Images (N, C, H, W).
        """
        if self.images is not None and self.images.shape[1:] != x.shape[1:]:
            raise ImageShape(
                f"The memory takes images of one size; it holds {tuple(self.images.shape[1:])} and got "
                f"{tuple(x.shape[1:])}. Resize them, or reset() the adapter."
            )

    def offer(self, image: Tensor, label: int, uncertainty: float, *, classes: int) -> None:
        """Offer an image, which may take the place of a worse one, and make every held image one step older.

        Args:
            image: The image (C, H, W).
            label: Its predicted class.
            uncertainty: The entropy of its prediction.
            classes: The number of classes.
        """
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
        """Return the held images, by class and oldest first, and their ages in units of the capacity."""
        assert self.images is not None
        slots = self._ordered(range(self.size))
        return self.images[slots], self.age[slots] / self.size

    def _slot_for(self, label: int, score: float, classes: int) -> int | None:
        """Find a slot for a new sample: empty, or that of the worst of its class or of the fullest classes; or none."""
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
        """Eq. 6: the score of a sample; the highest is removed first."""
        timeliness = 1 / (1 + math.exp(-age / self.size))
        return self.lambda_t * timeliness + self.lambda_u * uncertainty / math.log(classes)
