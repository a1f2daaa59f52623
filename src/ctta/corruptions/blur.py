"""Blur: defocus, motion, zoom, gaussian."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws
from ctta.corruptions.filters import convolve, gaussian, separable
from ctta.corruptions.motion import motion
from ctta.corruptions.taps import ZoomTaps, pixel_taps, zoom_taps
from ctta.corruptions.zoom import central_crop, zoom_matrix

#: At least this many planes are zoomed together.
_MANY: Final = 8
#: Fewer planes are zoomed by matrices, which are faster than taps below this side.
_LARGE: Final = 96


def defocus_blur(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Average over a disk.

    Args:
        x: (N, C, H, W), uint8.
        c: `radius` of the disk and `sigma` of its smoothing, in pixels.
        draws: Unused: this corruption is deterministic.
    """
    return convolve(x.float(), _disk(c["radius"], c["sigma"]))


def motion_blur(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Blur along a line within 45 degrees of horizontal.

    Args:
        x: (N, C, H, W), uint8.
        c: `radius` (half the length) and `sigma` of the kernel, in pixels.
        draws: Random numbers for the angle of each image.
    """
    degrees = draws.uniform(1).flatten() * 90 - 45
    return motion(x.float(), int(c["radius"]), c["sigma"], degrees)


def zoom_blur(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Average the image with copies zoomed about the centre.

    Args:
        x: (N, C, H, W), uint8.
        c: `end` and `step` of the zoom factors, which start at 1.
        draws: Unused: this corruption is deterministic.
    """
    # numpy's arange, as in the published code: its rounding decides whether the end is included.
    factors: list[float] = np.arange(1, c["end"], c["step"]).tolist()
    if not factors:
        return x.float()
    # The first factor is 1, and that zoom is the image itself.
    total = _sum_of_zooms(x, factors[1:])
    return total.div_(len(factors) + 1)


def _sum_of_zooms(x: Tensor, factors: list[float]) -> Tensor:
    """Return the sum of the images, themselves again, and their zooms, in the fastest of three ways."""
    many, large = len(x) * x.shape[1] >= _MANY, min(x.shape[2:]) >= _LARGE
    find = pixel_taps if many else zoom_taps
    zooms = [find(*x.shape[1:], factor) for factor in factors] if many or large else []
    taps = [zoom for zoom in zooms if zoom is not None]
    if len(taps) < len(factors):
        return _zoomed_by_matrices(x, factors)
    return _zoomed_as_pixels(x, taps) if many else _zoomed_by_planes(x, taps)


def _zoomed_by_matrices(x: Tensor, factors: list[float]) -> Tensor:
    """As `_sum_of_zooms`, whatever the images and the processor."""
    levels = x.float()
    height, width = x.shape[-2:]
    total = levels * 2
    for factor in factors:
        (h, top), (w, left) = central_crop(height, factor), central_crop(width, factor)
        crop = levels[..., top : top + h, left : left + w]
        total += separable(crop, zoom_matrix(height, factor), zoom_matrix(width, factor))
    return total


def _zoomed_as_pixels(x: Tensor, zooms: list[ZoomTaps]) -> Tensor:
    """As `_sum_of_zooms`, for many planes: the same pixel of all of them is one row."""
    height, width = x.shape[2:]
    pixels = torch.empty(height * width, len(x) * x.shape[1])
    pixels.copy_(x.view(-1, height * width).float().T)
    total = pixels * 2
    for zoom in zooms:
        total += zoom.down.apply(zoom.across.apply(pixels))
    return total.T.contiguous().view(x.shape)


def _zoomed_by_planes(x: Tensor, zooms: list[ZoomTaps]) -> Tensor:
    """As `_sum_of_zooms`, for few large images."""
    levels = x.float()
    total = levels * 2
    height, width = x.shape[2:]
    # One plane at a time stays within the cache.
    for plane, out in zip(levels.view(-1, height, width), total.view(-1, height, width), strict=True):
        lines = plane.T.contiguous()  # sums of whole rows are the fastest
        for zoom in zooms:
            out.add_(zoom.down.apply(zoom.across.apply(lines).T.contiguous()))
    return total


def gaussian_blur(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Average with Gaussian weights.

    Args:
        x: (N, C, H, W), uint8.
        c: `sigma`, the standard deviation of the Gaussian in pixels.
        draws: Unused: this corruption is deterministic.
    """
    return gaussian(x.float(), c["sigma"])


@lru_cache(maxsize=16)
def _disk(radius: float, sigma: float) -> Tensor:
    """Return a disk that sums to one, smoothed on its own grid and cropped to its non-zero part."""
    reach, smoothing = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    line = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).double()
    disk /= disk.sum()

    taps = torch.exp(-0.5 * (torch.arange(-smoothing, smoothing + 1) / max(sigma, 1e-9)) ** 2).double()
    taps /= taps.sum()
    mirror = torch.arange(-smoothing, 2 * reach + 1 + smoothing).abs()
    mirror = torch.minimum(mirror, 4 * reach - mirror)
    for _ in range(2):
        disk = (disk[mirror].unfold(0, 2 * smoothing + 1, 1) * taps).sum(-1).T
    used = int(line[disk.amax(0) > 1e-9].max())
    return disk[reach - used : reach + used + 1, reach - used : reach + used + 1].float()
