"""Products with banded matrices: the zeros outside the band are left out, and the bits stay those of the full product.

A filter mixes neighbouring pixels, so most of its matrix is zero. Skipping zeros does not change a sum that is
accumulated from the first term to the last, but libraries may split long sums in two, and where they do so depends on
the processor. Hence every block of rows is tried once on random numbers, and computed in full if any bit differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

#: Rows of the matrix per block: fewer have narrower bands, more have fewer products.
_BLOCK: Final = 32


class Band(NamedTuple):
    """Some rows of a matrix and the columns that they use."""

    rows: slice
    columns: slice
    matrix: Tensor


Bands = tuple[Band, ...]


def multiply_across(x: Tensor, matrix: Tensor) -> Tensor:
    """Apply a matrix (w, W) to the rows of (N, H, W).

    Args:
        x: (N, H, W).
        matrix: The matrix, (w, W), non-zero only near its diagonal. It must not be changed afterwards.
    """
    return _across(x, matrix, _bands_across(matrix, x.shape[1]))


def multiply_down(matrix: Tensor, x: Tensor) -> Tensor:
    """Apply a matrix (h, H) to the columns of (N, H, W).

    Args:
        matrix: The matrix, (h, H), non-zero only near its diagonal. It must not be changed afterwards.
        x: (N, H, W).
    """
    return _down(x, matrix, _bands_down(matrix, x.shape[2]))


def _across(x: Tensor, matrix: Tensor, bands: Bands) -> Tensor:
    out = x.new_empty(*x.shape[:2], len(matrix))
    for rows, columns, part in bands:
        torch.bmm(x[..., columns], part.T.expand(len(x), -1, -1), out=out[..., rows])
    return out


def _down(x: Tensor, matrix: Tensor, bands: Bands) -> Tensor:
    out = x.new_empty(len(x), len(matrix), x.shape[2])
    for rows, columns, part in bands:
        torch.bmm(part.expand(len(x), -1, -1), x[:, columns], out=out[:, rows])
    return out


@lru_cache(maxsize=256)
def _bands_across(matrix: Tensor, height: int) -> Bands:
    x = _random(height, matrix.shape[1])
    full = torch.bmm(x, matrix.T.expand(1, -1, -1))
    return _chosen(matrix, lambda bands: (_across(x, matrix, bands) == full).all(1)[0])


@lru_cache(maxsize=256)
def _bands_down(matrix: Tensor, width: int) -> Bands:
    x = _random(matrix.shape[1], width)
    full = torch.bmm(matrix.expand(1, -1, -1), x)
    return _chosen(matrix, lambda bands: (_down(x, matrix, bands) == full).all(2)[0])


def _random(height: int, width: int) -> Tensor:
    return torch.rand(1, height, width, generator=torch.Generator().manual_seed(0)) * 255


def _chosen(matrix: Tensor, same: Callable[[Bands], Tensor]) -> Bands:
    """Return the narrowest bands for which every row is the same as in the full product.

    Args:
        matrix: The matrix.
        same: Given bands, tells for every row of the matrix whether the product is the same.
    """
    bands = _narrow(matrix)
    good = same(bands)
    everything = slice(0, matrix.shape[1])
    bands = tuple(
        band if bool(good[band.rows].all()) else Band(band.rows, everything, matrix[band.rows]) for band in bands
    )
    return bands if bool(same(bands).all()) else (Band(slice(0, len(matrix)), everything, matrix),)


def _narrow(matrix: Tensor) -> Bands:
    bands = []
    for first in range(0, len(matrix), _BLOCK):
        rows = slice(first, min(first + _BLOCK, len(matrix)))
        used = matrix[rows].any(0).nonzero()
        columns = slice(int(used[0]), int(used[-1]) + 1)
        bands.append(Band(rows, columns, matrix[rows, columns].contiguous()))
    return tuple(bands)
