"""The two parts of NOTE: instance-aware batch norm, and the memory of prediction-balanced reservoir sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ctta.methods._parts.image_memory import ImageMemory
from ctta.methods._parts.norm_layers import StatisticsNorm

Base = Literal["stored", "batch", "image"]


class IABN(StatisticsNorm):
    """Instance-aware batch norm (Sec. 3.1): common statistics, corrected for images that deviate significantly.

    Args:
        layer: The batch norm to replace.
        k: How many standard errors an image's statistics must deviate before they are corrected for.
        base: Where the common statistics come from: "stored", "batch", or "image", as if each came alone.
    """

    def __init__(self, layer: _BatchNorm, *, k: float, base: Base) -> None:
        super().__init__(layer)
        self.k = k
        self.base: Base = base
        self.share: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each image by the common statistics, corrected for its own; gradients flow through both."""
        pixels = math.prod(x.shape[2:])
        mean, var = self.common(x, pixels)
        if pixels > 1:
            own_var, own_mean = torch.var_mean(x, list(range(2, x.dim())), keepdim=True)  # unbiased
            s_mean = ((var + self.eps) / pixels).sqrt()
            s_var = (var + self.eps) * math.sqrt(2 / (pixels - 1))
            mean, var = (
                mean + shrink(own_mean - mean, self.k * s_mean),
                (var + shrink(own_var - var, self.k * s_var)).relu(),
            )
        out = (x - mean) * (var + self.eps).rsqrt()
        if self.weight is None or self.bias is None:
            return out
        shape = (1, -1, *[1] * (x.dim() - 2))
        return out * self.weight.view(shape) + self.bias.view(shape)

    def common(self, x: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
        """Return the common mean and variance, with one dimension for each of the activations'.

        Args:
            x: Activations (N, C, ...).
            pixels: The number of values per image and channel.
        """
        shape = (1, -1, *[1] * (x.dim() - 2))
        by_batch = self.base == "batch" and len(x) * pixels > 1  # a single value has no variance
        if by_batch or (self.base == "image" and pixels > 1):
            dims = [0, *range(2, x.dim())] if by_batch else list(range(2, x.dim()))
            var, mean = torch.var_mean(x, dims, keepdim=True)
            if self.share is not None:
                self.mean = self.mean.lerp(mean.detach().flatten().to(self.mean), self.share)
                self.var = self.var.lerp(var.detach().flatten().to(self.var), self.share)
            return mean, var
        return self.mean.view(shape), self.var.view(shape)


def shrink(x: Tensor, threshold: Tensor) -> Tensor:
    """Move values towards 0 by a threshold, and values below it to 0.

    Args:
        x: The values.
        threshold: The thresholds, 0 or above.
    """
    return (x - threshold).relu() - (-x - threshold).relu()


class normalising:  # noqa: N801, used as a context manager
    """Context in which IABN layers take their common statistics from elsewhere.

    Args:
        layers: The layers.
        base: Where they come from; see `IABN`.
        share: The share of these statistics in the stored ones, if they are moved.
    """

    def __init__(self, layers: Sequence[IABN], base: Base, *, share: float | None = None) -> None:
        self._before = [(layer, layer.base) for layer in layers]
        self._base: Base = base
        self._share = share

    def __enter__(self) -> None:
        for layer, _ in self._before:
            layer.base, layer.share = self._base, self._share

    def __exit__(self, *exc: object) -> None:
        for layer, base in self._before:
            layer.base, layer.share = base, None


class BalancedReservoir(ImageMemory):
    """Prediction-balanced reservoir sampling (Alg. 1): balanced over the predicted classes and over time.

    Args:
        size: The maximum number of images to hold.
    """

    serial: Tensor
    seen: Tensor | None

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.register_buffer("serial", torch.zeros(size, dtype=torch.long))
        self.register_buffer("seen", None)  # how many images of each class were offered

    def offer(
        self,
        image: Tensor,
        label: int,
        *,
        classes: int,
        choice: Callable[[Sequence[int]], int],
        uniform: Callable[[], float],
    ) -> None:
        """Offer an image, which may take the place of another one.

        Args:
            image: The image (C, H, W).
            label: Its predicted class.
            classes: The number of classes.
            choice: Draws one of the given numbers.
            uniform: Draws a number from [0, 1).
        """
        if self.seen is None:
            self.seen = torch.zeros(classes, dtype=torch.long, device=self.label.device)
        self.seen[label] += 1
        place = self._place_for(label, int(self.seen[label]), choice, uniform)
        if place is not None:
            at = torch.tensor([place], device=self.label.device)
            self.put(at, image.unsqueeze(0), at.new_tensor([label]))
            self.serial[place] = self.serial.max() + 1

    def content(self) -> Tensor:
        """Return the held images, by class and oldest first."""
        assert self.images is not None
        return self.images[[place for label in sorted(set(self._held())) for place in self._places_of(label)]]

    def _place_for(
        self, label: int, seen: int, choice: Callable[[Sequence[int]], int], uniform: Callable[[], float]
    ) -> int | None:
        held = self._held()
        if len(held) < self.size:
            return len(held)
        counts = {c: held.count(c) for c in sorted(set(held))}
        largest = [c for c, count in counts.items() if count == max(counts.values())]
        if label not in largest:
            dropped = choice(largest)
        elif uniform() <= counts[label] / seen:
            dropped = label
        else:
            return None
        places = self._places_of(dropped)
        return places[choice(range(len(places)))]

    def _held(self) -> list[int]:
        return [label for label in self.label.tolist() if label >= 0]

    def _places_of(self, label: int) -> list[int]:
        serial = self.serial.tolist()
        return sorted(
            (place for place, held in enumerate(self.label.tolist()) if held == label), key=lambda p: serial[p]
        )


def iabn_layers(network: nn.Module) -> list[IABN]:
    """Find every IABN layer.

    Args:
        network: The network.
    """
    return [layer for layer in network.modules() if isinstance(layer, IABN)]
