"""Labelled images held in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from ctta.datasets.convert import images_tensor, labels_tensor
from ctta.errors import ParameterError


@dataclass(frozen=True, init=False)
class Images:
    """Hold images (N, C, H, W), uint8 or floats in [0, 1], and their classes (N,).

    Args:
        x: Images (N, C, H, W) or (N, H, W, C), or a list of images of one size.
        y: The class of each image, an integer of at least 0.
    """

    x: Tensor
    y: Tensor

    def __init__(self, x: Tensor | NDArray[Any] | list[Any], y: Tensor | NDArray[Any] | list[int]) -> None:
        """Convert images and labels to tensors."""
        object.__setattr__(self, "x", images_tensor(x))
        object.__setattr__(self, "y", labels_tensor(y, len(self.x)))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, which: slice | Tensor) -> Images:
        """Return the images at some positions, in the order given.

        Args:
            which: A slice, or a tensor of positions.
        """
        return Images(self.x[which], self.y[which])

    def first(self, count: int | None) -> Images:
        """Return the first images.

        Args:
            count: How many, from 1 to all of them; None returns all.
        """
        if count is None:
            return self
        if not 1 <= count <= len(self):
            raise ParameterError(f"The number of images must be in 1..{len(self)}. Got {count} instead.")
        return self.take(slice(count))

    def floats(self) -> Tensor:
        """The images as floats in [0, 1]."""
        return self.x.float() / 255 if self.x.dtype == torch.uint8 else self.x
