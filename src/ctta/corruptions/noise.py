"""Noise corruptions: gaussian, shot, impulse, speckle."""

from __future__ import annotations

import torch
from torch import Tensor

from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws
from ctta.corruptions.poisson import poisson


def gaussian_noise(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Add normal noise to every value.

    Args:
        x: (N, C, H, W), uint8.
        c: `sd`, the standard deviation of the noise, as a fraction of white.
        draws: Random numbers for the noise.
    """
    return draws.normal(*x.shape[1:]).mul_(255 * c["sd"]).add_(x)


def shot_noise(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Add Poisson noise, whose variance is proportional to the brightness.

    Args:
        x: (N, C, H, W), uint8.
        c: `photons`, the expected count at white; fewer photons give more noise.
        draws: Random numbers for the photon counts.
    """
    photons = min(c["photons"], 1e9)  # more would overflow, and change no value by a hundredth of a grey level
    return poisson(x, photons, draws.uniform(*x.shape[1:])).mul_(255 / photons)


def impulse_noise(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Set a share of the values to black or white, half each.

    Args:
        x: (N, C, H, W), uint8.
        c: `share`, the expected fraction of values that are replaced.
        draws: Random numbers for which values are replaced.
    """
    u = draws.uniform(*x.shape[1:])
    salt = (u < c["share"] / 2).to(torch.uint8)
    return x * (u >= c["share"]) + salt * 255


def speckle_noise(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Multiply every value by normal noise of mean one.

    Args:
        x: (N, C, H, W), uint8.
        c: `sd`, the standard deviation of the factor.
        draws: Random numbers for the factors.
    """
    return draws.normal(*x.shape[1:]).mul_(c["sd"]).add_(1).mul_(x.to(torch.float32))
