"""Bilinear zoom about the centre by its two taps per pixel, with the bits of the products with `zoom_matrix`.

A product adds the two terms of a pixel with one rounding (a fused multiply-add), or with two where a library splits its
sums or the processor has no such instruction. Hence each row is tried once on random numbers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ctta.corruptions.zoom import central_crop, zoom_matrix

#: Images of at least this side are tried on numbers of one size, as they were when streams of them were published.
_LARGE: Final = 96


class Taps(NamedTuple):
    """Weighted sums of two rows each."""

    #: The rows that are added, (sums, 2) int32, and their weights.
    sources: Tensor
    weights: Tensor
    #: Sums whose terms are rounded one by one, int32.
    rounded_twice: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Compute the sums of the rows of a (rows, n) tensor.

        Args:
            x: The rows, (rows, n). Their stride must be 1, even if n is 1, where torch would else round differently.
        """
        out: Tensor = embedding_bag(self.sources, x, mode="sum", per_sample_weights=self.weights)
        if len(self.rounded_twice):
            some = self.rounded_twice
            first, second = self.sources.index_select(0, some).unbind(1)
            weights = self.weights.index_select(0, some)
            terms = x.index_select(0, first).mul_(weights[:, :1])
            out.index_copy_(0, some.long(), terms.add_(x.index_select(0, second).mul_(weights[:, 1:])))
        return out


class ZoomTaps(NamedTuple):
    """The taps of a zoom along both axes."""

    across: Taps
    down: Taps


@lru_cache(maxsize=256)
def zoom_taps(channels: int, height: int, width: int, factor: float) -> ZoomTaps | None:
    """Return the taps of a zoom along the lines of an image and down them, or None if the products have other bits.

    Args:
        channels: Number of channels of the images.
        height: Height of the images, in pixels.
        width: Width of the images, in pixels.
        factor: Zoom factor, more than 1.
    """
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return None  # such processors had no taps when streams were published, and a trial can miss rare bits
    rows, columns = zoom_matrix(height, factor), zoom_matrix(width, factor)
    generator = torch.Generator().manual_seed(0)
    spread = min(height, width) < _LARGE
    lines = _random(channels * rows.shape[1], columns.shape[1], generator, spread)
    across = _taps(lines[0].T.contiguous(), columns, torch.bmm(lines, columns.T[None])[0].T)
    planes = _random(rows.shape[1], width, generator, spread)
    down = _taps(planes[0], rows, torch.bmm(rows[None], planes)[0])
    if across is None or down is None:
        return None
    return ZoomTaps(_shifted(across, central_crop(width, factor)[1]), _shifted(down, central_crop(height, factor)[1]))


@lru_cache(maxsize=32)  # they are large, and an image has at most 31
def pixel_taps(channels: int, height: int, width: int, factor: float) -> ZoomTaps | None:
    """As `zoom_taps`, where every pixel is a row; the taps down apply to what those across give.

    Args:
        channels: Number of channels of the images.
        height: Height of the images, in pixels.
        width: Width of the images, in pixels.
        factor: Zoom factor, more than 1.
    """
    taps = zoom_taps(channels, height, width, factor)
    if taps is None:
        return None
    crop, top = central_crop(height, factor)
    lines = torch.arange(top, top + crop, dtype=torch.int32)[:, None] * width
    columns = torch.arange(width, dtype=torch.int32)
    down = _shifted(taps.down, -top)
    return ZoomTaps(
        Taps(
            (lines[..., None] + taps.across.sources).flatten(0, 1),
            taps.across.weights.repeat(crop, 1),
            (lines + taps.across.rounded_twice).flatten() - top * width,
        ),
        Taps(
            (down.sources[:, None] * width + columns[:, None]).flatten(0, 1),
            down.weights.repeat_interleave(width, 0),
            (down.rounded_twice[:, None] * width + columns).flatten(),
        ),
    )


def _random(height: int, width: int, generator: torch.Generator, spread: bool) -> Tensor:
    x = torch.rand(1, height, width, generator=generator) * 255
    if spread:  # where one weight is small, numbers of one size seldom tell one rounding from two
        x *= torch.randint(-8, 9, x.shape, generator=generator).float().exp2()
    return x


def _taps(x: Tensor, matrix: Tensor, expected: Tensor) -> Taps | None:
    """Return the taps that turn x into the expected product with the matrix, or None."""
    first = matrix.ne(0).int().argmax(1, keepdim=True).clamp(max=matrix.shape[1] - 2)
    sources = torch.cat([first, first + 1], 1)
    taps = Taps(sources.int(), matrix.gather(1, sources), torch.zeros(0, dtype=torch.int32))
    different = taps.apply(x).ne(expected).any(1).nonzero().flatten()
    taps = taps._replace(rounded_twice=different.int())
    return taps if torch.equal(taps.apply(x), expected) else None


def _shifted(taps: Taps, by: int) -> Taps:
    """Return the taps of a whole axis from those of its central crop."""
    return taps._replace(sources=taps.sources + by)
