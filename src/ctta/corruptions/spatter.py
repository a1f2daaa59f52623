"""Spatter: drops of water or mud on the lens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ctta.corruptions.colour import luma
from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws
from ctta.corruptions.edges import canny, distance
from ctta.corruptions.filters import gaussian

_WATER = (175.0, 238.0, 238.0)
_MUD = (63.0, 42.0, 20.0)
_FARTHEST = 20.0


def spatter(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Add water (a bright film) or mud (opaque brown) where smoothed noise exceeds a threshold.

    Args:
        x: (N, C, H, W), uint8.
        c: `mean`, `sd`, `sigma` and `threshold` of the noise, `strength` of the film (for mud, the sigma in pixels
            that smooths its mask), and `mud`, 0 for water.
        draws: Random numbers for the noise.
    """
    liquid = gaussian(draws.normal(1, *x.shape[2:]) * c["sd"] + c["mean"], c["sigma"])
    if c["mud"]:
        cover = gaussian((liquid > c["threshold"]).float(), c["strength"])
        cover = torch.where(cover < 0.8, 0, cover)
        return x * (1 - cover) + _colour(_MUD, x.shape[1]) * cover
    liquid = torch.where(liquid < c["threshold"], 0, liquid).mul_(255).clamp_(0, 255).floor_()
    film = liquid * _relief(liquid)
    film = film / film.flatten(1).amax(1).clamp(min=1)[:, None, None, None]
    return x + (film * c["strength"]) * _colour(_WATER, x.shape[1])


def _colour(rgb: tuple[float, float, float], channels: int) -> Tensor:
    colour = torch.tensor(rgb).view(3, 1, 1)
    return luma(colour) if channels == 1 else colour


def _relief(liquid: Tensor) -> Tensor:
    """Compute the thickness of the film: the distance to a drop's edge, equalised and lit from one corner."""
    depth = distance(canny(liquid, low=50, high=150), farthest=_FARTHEST)
    depth = _equalise(_box3(depth).floor_())
    p = pad(depth, (1, 1, 1, 1), mode="reflect")
    h, w = depth.shape[-2:]
    kernel = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
    lit = torch.zeros_like(depth)
    for i, row in enumerate(kernel):
        for j, weight in enumerate(row):
            lit += p[..., i : i + h, j : j + w] * weight
    return _box3(lit.clamp_(0, 255)).round_()


def _box3(x: Tensor) -> Tensor:
    p = pad(x, (1, 1, 1, 1), mode="reflect")
    rows = p[..., :-2, :] + p[..., 1:-1, :] + p[..., 2:, :]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) / 9


def _equalise(x: Tensor) -> Tensor:
    """Equalise the histogram of 8-bit levels (N, 1, H, W); the darkest level present becomes 0."""
    flat = x.flatten(1).long()
    counts = torch.zeros(len(x), 256, dtype=torch.int64).scatter_add_(1, flat, torch.ones_like(flat))
    total = flat.shape[1]
    darkest = flat.amin(1, keepdim=True)
    first = counts.gather(1, darkest)
    table = (counts.cumsum(1) - first).float() * (255 / (total - first).clamp(min=1))
    flattened = torch.where(first == total, flat.float(), table.round().gather(1, flat))
    return flattened.view_as(x)
