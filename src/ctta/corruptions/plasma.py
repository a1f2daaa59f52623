"""The diamond-square fractal used for fog."""

from __future__ import annotations

from torch import Tensor


def plasma(noise: Tensor, decay: float) -> Tensor:
    """Turn noise into periodic fractals in [0, 1].

    Args:
        noise: Uniform in [-1, 1], (N, S, S) with S a power of two.
        decay: Factor by which the amplitude shrinks from one scale to the next.
    """
    size = noise.shape[-1]
    heights = noise.clone()
    heights[:, 0, 0] = 0
    step, wibble = size, 100.0
    while step >= 2:
        half, amplitude = step // 2, wibble**2
        corners = heights[:, ::step, ::step]
        centres = heights[:, half::step, half::step]
        above = heights[:, ::step, half::step]
        beside = heights[:, half::step, ::step]

        pairs = corners + corners.roll(-1, 1)
        centres.mul_(amplitude).add_((pairs + pairs.roll(-1, 2)) / 4)
        around = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        above.mul_(amplitude).add_(around / 4)
        around = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        beside.mul_(amplitude).add_(around / 4)

        step, wibble = half, wibble / decay
    flat = heights.flatten(1)
    low, high = flat.amin(1)[:, None, None], flat.amax(1)[:, None, None]
    return (heights - low) / (high - low)
