"""Procedural frost: random textures with tones and spectra measured on photographs."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_SIDE = 640
#: Bounds of the octaves below, in cycles per 256 pixels; the fifth and higher octaves show crystals.
_CYCLES = (0.3, 1, 2, 4, 8, 16, 32, 64, 128, 182)
_CRYSTALS = 4
#: How much the density of crystals varies from place to place.
_PATCHINESS = 0.2
#: Normal scores of the percentiles at which the tones are given.
_SCORES = (-2.33, -1.64, -0.67, 0.0, 0.67, 1.64, 2.33)


class _Look(NamedTuple):
    mean: tuple[int, int, int]  # red, green, blue
    spread: tuple[int, int, int]
    tones: tuple[int, ...]  # grey levels at the percentiles 1, 5, 25, 50, 75, 95, 99
    octaves: tuple[float, ...]  # standard deviation of the grey level in each octave


# fmt: off
_BLUE_FILM = _Look(
    (78, 149, 166), (27, 16, 15), (97, 104, 118, 129, 142, 163, 177),
    (11.8, 5.7, 5.3, 4.1, 3.3, 3.8, 5.8, 6.6, 1.6))
_WHITE_NEEDLES = _Look(
    (201, 205, 214), (21, 22, 23), (141, 166, 195, 210, 222, 236, 245),
    (12.3, 6.3, 6.0, 6.6, 7.0, 7.3, 7.6, 7.0, 1.4))
_GREY_STARS = _Look(
    (138, 153, 165), (28, 28, 30), (82, 104, 134, 152, 169, 199, 234),
    (17.9, 4.1, 4.7, 5.6, 8.0, 9.6, 11.9, 11.8, 2.5))
_DARK_FERNS = _Look(
    (112, 123, 135), (44, 43, 42), (45, 60, 92, 119, 151, 203, 238),
    (21.9, 12.5, 12.1, 14.9, 14.6, 14.5, 14.4, 13.9, 5.6))
# fmt: on
_LOOKS = (_BLUE_FILM, _WHITE_NEEDLES, _WHITE_NEEDLES, _GREY_STARS, _DARK_FERNS)

PANES = len(_LOOKS)


def draw_pane(index: int) -> Tensor:
    """Draw a frosted pane, (3, 640, 640) uint8; the same every time.

    Args:
        index: 0 to 4.
    """
    look = _LOOKS[index]
    octaves = _octaves(torch.Generator().manual_seed(index))
    sizes = torch.tensor(look.octaves)[:, None, None]
    ground = (octaves * sizes)[:_CRYSTALS].sum(0)
    crystals = (octaves * sizes)[_CRYSTALS:].sum(0)
    growth = torch.exp(_PATCHINESS * (octaves[1] + octaves[2]))
    field = ground + crystals * growth / growth.square().mean().sqrt()
    tone = torch.from_numpy(np.interp((field / field.std()).numpy(), _SCORES, look.tones)).float()
    score = (tone - tone.mean()) / tone.std()
    channels = [score * spread + mean for mean, spread in zip(look.mean, look.spread, strict=True)]
    return torch.stack(channels).round().clamp(0, 255).to(torch.uint8)


def _octaves(generator: torch.Generator) -> Tensor:
    """Split white noise into octaves of mean 0 and variance 1, (octaves, side, side)."""
    spectrum = torch.fft.rfft2(torch.randn(_SIDE, _SIDE, generator=generator))
    cycles = torch.hypot(torch.fft.fftfreq(_SIDE)[:, None], torch.fft.rfftfreq(_SIDE)) * 256
    rings = [
        torch.fft.irfft2(spectrum * ((cycles >= low) & (cycles < high)), s=(_SIDE, _SIDE))
        for low, high in pairwise(_CYCLES)
    ]
    return torch.stack([ring / ring.std() for ring in rings])
