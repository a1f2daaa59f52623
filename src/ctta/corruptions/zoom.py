"""Bilinear zoom about the centre, as matrices for `filters.separable`."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def zoom_matrix(size: int, factor: float) -> Tensor:
    """Return the matrix (size, crop) that enlarges the central part of an axis back to its full size.

    Args:
        size: Pixels along the axis.
        factor: Zoom factor, at least 1.
    """
    crop, _ = central_crop(size, factor)
    zoomed = max(round(crop * factor), size)
    trim = (zoomed - size) // 2
    at = torch.arange(trim, trim + size, dtype=torch.float64) * (crop - 1) / max(zoomed - 1, 1)
    low = at.long().clamp(max=max(crop - 2, 0))
    matrix = torch.zeros(size, crop, dtype=torch.float64)
    matrix.scatter_(1, low[:, None], (1 - (at - low))[:, None])
    if crop > 1:
        matrix.scatter_(1, low[:, None] + 1, (at - low)[:, None])
    return matrix.float()


def central_crop(size: int, factor: float) -> tuple[int, int]:
    """Return the number of central pixels that remain visible after a zoom, and the index of the first.

    Args:
        size: Pixels along the axis.
        factor: Zoom factor, at least 1.
    """
    crop = math.ceil(size / factor)
    return crop, (size - crop) // 2
