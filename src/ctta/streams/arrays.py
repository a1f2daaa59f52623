"""Labelled images held in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ctta.errors import ImageDtype, ImageShape, ParameterError


@dataclass(frozen=True)
class Images:
    """Images (N, C, H, W), uint8 or floats in [0, 1], and their classes (N,)."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.x.dtype != torch.uint8 and not self.x.is_floating_point():
            raise ImageDtype(f"Images must be uint8 or floats in [0, 1]; got {self.x.dtype}.")
        if self.x.dim() != 4 or 0 in self.x.shape:
            raise ImageShape(f"Images must be a non-empty (N, C, H, W) tensor; got {tuple(self.x.shape)}.")
        if self.y.shape != self.x.shape[:1]:
            raise ImageShape(f"{len(self.x)} images need {len(self.x)} classes; got {tuple(self.y.shape)}.")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, which: slice | Tensor) -> Images:
        """The images a slice or a tensor of positions names, in its order."""
        return Images(self.x[which], self.y[which])

    def first(self, count: int | None) -> Images:
        """The first images; all of them where count is None."""
        if count is None:
            return self
        if not 1 <= count <= len(self):
            raise ParameterError(f"The number of images must be in 1..{len(self)}. Got {count} instead.")
        return self.take(slice(count))

    def floats(self) -> Tensor:
        """The images as floats in [0, 1]."""
        return self.x.float() / 255 if self.x.dtype == torch.uint8 else self.x
