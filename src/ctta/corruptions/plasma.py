"""The diamond-square fractal used for fog."""

from __future__ import annotations

import torch
from torch import Tensor


def plasma(noise: Tensor, decay: float) -> Tensor:
    """Turn noise into periodic fractals in [0, 1].

    Args:
        noise: Uniform in [-1, 1], (N, S, S) with S a power of two.
        decay: Factor by which the amplitude shrinks from one scale to the next.
    """
    step, wibble = noise.shape[-1], 100.0
    corners = noise.new_zeros(len(noise), 1, 1)
    while step >= 2:
        half, amplitude = step // 2, wibble**2
        pairs = corners + corners.roll(-1, 1)
        around = pairs.add_(pairs.roll(-1, 2)).div_(4)
        centres = (noise[:, half::step, half::step] * amplitude).add_(around)
        around = (centres + centres.roll(1, 1)).add_(corners).add_(corners.roll(-1, 2)).div_(4)
        above = (noise[:, ::step, half::step] * amplitude).add_(around)
        around = (centres + centres.roll(1, 2)).add_(corners).add_(corners.roll(-1, 1)).div_(4)
        beside = (noise[:, half::step, ::step] * amplitude).add_(around)

        upper, lower = torch.stack([corners, above], 3), torch.stack([beside, centres], 3)
        corners = torch.stack([upper.flatten(2), lower.flatten(2)], 2).flatten(1, 2)
        step, wibble = half, wibble / decay
    flat = corners.flatten(1)
    low, high = flat.amin(1)[:, None, None], flat.amax(1)[:, None, None]
    return corners.sub_(low).div_(high - low)
