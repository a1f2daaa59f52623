"""Bilinear zoom about the centre by its two taps per pixel, with the bits of the products with `zoom_matrix`.

A product adds the two terms of a pixel with one rounding (a fused multiply-add), or with two where a library splits its
sums or the processor has no such instruction. Hence each row is tried once on random numbers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ctta.corruptions.zoom import central_crop, zoom_matrix


class Taps(NamedTuple):
    """For every pixel along an axis, the index and weight of the two that it is interpolated from."""

    first: Tensor
    second: Tensor
    weight_of_first: Tensor
    weight_of_second: Tensor
    #: Pixels whose terms are rounded one by one.
    rounded_twice: tuple[int, ...] = ()

    def apply(self, x: Tensor) -> Tensor:
        """Interpolate along the first axis of a (size, n) tensor.

        Args:
            x: The values, (size, n).
        """
        out = x.index_select(0, self.first).mul_(self.weight_of_first)
        out.addcmul_(x.index_select(0, self.second), self.weight_of_second)
        for i in self.rounded_twice:
            out[i] = x[self.first[i]] * self.weight_of_first[i] + x[self.second[i]] * self.weight_of_second[i]
        return out


class ZoomTaps(NamedTuple):
    """The taps of a zoom along both axes."""

    across: Taps
    down: Taps


@lru_cache(maxsize=256)
def zoom_taps(channels: int, height: int, width: int, factor: float) -> ZoomTaps | None:
    """Return the taps of a zoom, or None if they do not give the bits of the products.

    Args:
        channels: Number of channels of the images.
        height: Height of the images, in pixels.
        width: Width of the images, in pixels.
        factor: Zoom factor, more than 1.
    """
    rows, columns = zoom_matrix(height, factor), zoom_matrix(width, factor)
    generator = torch.Generator().manual_seed(0)
    lines = torch.rand(1, channels * rows.shape[1], columns.shape[1], generator=generator) * 255
    across = _taps(lines[0].T, columns, torch.bmm(lines, columns.T[None])[0].T)
    planes = torch.rand(1, rows.shape[1], width, generator=generator) * 255
    down = _taps(planes[0], rows, torch.bmm(rows[None], planes)[0])
    if across is None or down is None:
        return None
    return ZoomTaps(_shifted(across, central_crop(width, factor)[1]), _shifted(down, central_crop(height, factor)[1]))


def _taps(x: Tensor, matrix: Tensor, expected: Tensor) -> Taps | None:
    """Return the taps that turn x into the expected product with the matrix, or None."""
    first = matrix.ne(0).int().argmax(1).clamp(max=matrix.shape[1] - 2)
    weights = matrix.gather(1, torch.stack([first, first + 1], 1))
    taps = Taps(first, first + 1, weights[:, :1], weights[:, 1:])
    different = taps.apply(x).ne(expected).any(1).nonzero().flatten()
    taps = taps._replace(rounded_twice=tuple(different.tolist()))
    return taps if torch.equal(taps.apply(x), expected) else None


def _shifted(taps: Taps, by: int) -> Taps:
    """Return the taps of a whole axis from those of its central crop."""
    return taps._replace(first=taps.first + by, second=taps.second + by)
