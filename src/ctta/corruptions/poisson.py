"""Poisson noise for 8-bit images: exact draws from 256 distributions through alias tables."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

#: Photons at white above which counts are normally distributed: no published severity has more, and tables grow.
_MANY = 500


def poisson(levels: Tensor, photons: float, uniform: Tensor) -> Tensor:
    """Draw photon counts.

    Args:
        levels: Grey levels, uint8.
        photons: Expected count at white.
        uniform: A random number in [0, 1) for every value. Overwritten.
    """
    if photons > _MANY:
        rate = levels.float() * (photons / 255)
        counts: Tensor = (rate + rate.sqrt() * torch.special.ndtri(uniform.clamp(min=2**-25))).round_().clamp_(min=0)
        return counts
    accept, counts = _tables(photons)
    width = len(accept) // 256
    scaled = uniform.mul_(width).flatten()
    column = scaled.int()
    cell = levels.int().flatten().mul_(width).add_(column)
    chosen = accept.index_select(0, cell)
    rejected = scaled.sub_(column) >= chosen
    torch.index_select(counts, 0, cell.add_(rejected, alpha=len(accept)), out=chosen)
    return chosen.view(levels.shape)


@lru_cache(maxsize=32)
def _tables(photons: float) -> tuple[Tensor, Tensor]:
    """Build Walker's tables: acceptance shares by grey level and column; own counts, then alias counts."""
    rate = torch.arange(256, dtype=torch.float64)[:, None] * photons / 255
    reach = 8 * rate.sqrt() + 12  # the tails beyond have a probability below 1e-12
    first = (rate - reach).floor().clamp(min=0)
    width = 2 ** math.ceil(math.log2(float((rate + reach - first).max()) + 1))
    counts = first + torch.arange(width)
    mass = torch.exp(torch.xlogy(counts, rate) - rate - torch.lgamma(counts + 1))
    mass *= width / mass.sum(1, keepdim=True)

    accept = torch.ones_like(mass)
    alias = torch.arange(width).repeat(256, 1)
    for _ in range(width):
        poor, least = mass.argmin(1, keepdim=True), mass.amin(1, keepdim=True)
        rich, most = mass.argmax(1, keepdim=True), mass.amax(1, keepdim=True)
        open_ = least < 1 - 1e-9  # rows that still have a cell to fill
        if not bool(open_.any()):
            break
        accept.scatter_(1, poor, torch.where(open_, least, accept.gather(1, poor)))
        alias.scatter_(1, poor, torch.where(open_, rich, alias.gather(1, poor)))
        mass.scatter_(1, poor, torch.where(open_, 1, least))
        mass.scatter_(1, rich, torch.where(open_, most - (1 - least), mass.gather(1, rich)))
    return accept.float().flatten(), torch.stack([counts, first + alias]).float().flatten()
