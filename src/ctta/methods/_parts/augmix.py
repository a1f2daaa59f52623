"""AugMix at the strength that MEMO uses: mixtures of short chains of mild operations.

Hendrycks et al., "AugMix: A simple data processing method to improve robustness and uncertainty", ICLR 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# An operation on images (N, C, H, W), with a number from [-1, 1] for its strength and direction.
Operation = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class AugMix:
    """A random crop, randomly flipped, mixed with chains of operations on it. Every parameter is drawn once per call.

    Args:
        level: The largest strength of an operation, in tenths of the strongest in AugMix.
        chains: How many chains are mixed, of one to three operations each.

    Example:
        >>> AugMix()(torch.rand(1, 3, 16, 16), torch.Generator().manual_seed(0)).shape
        torch.Size([1, 3, 16, 16])
    """

    level: float = 1.0
    chains: int = 3

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random view of a batch.

        Args:
            x: Images (N, C, H, W) in [0, 1].
            generator: Draws the view.
        """
        # Dirichlet(1, ..., 1), as normalised exponentials; the share of the crop itself is uniform, Beta(1, 1).
        drawn = torch.empty(self.chains).exponential_(generator=generator)
        weights = (drawn / drawn.sum()).tolist()
        share = torch.rand((), generator=generator).item()
        crop = random_crop(x, generator)
        mixed = torch.zeros_like(crop)
        for weight in weights:
            chain = crop
            for _ in range(_draw(1, 3, generator)):
                operation = OPERATIONS[_draw(0, len(OPERATIONS) - 1, generator)]
                strength = torch.empty(()).uniform_(0.1, max(self.level, 0.1), generator=generator).item() / 10
                chain = operation(chain, strength if _draw(0, 1, generator) else -strength)
            mixed = mixed + weight * chain
        return (share * crop + (1 - share) * mixed).clamp(0, 1)


def random_crop(x: Tensor, generator: torch.Generator) -> Tensor:
    """Shift images by up to an eighth of their sides (4 of 32 pixels) over black borders, and flip them at random.

    Args:
        x: Images (N, C, H, W).
        generator: Draws one shift and flip for all.
    """
    height, width = x.shape[-2:]
    down, right = height // 8, width // 8
    top, left = _draw(0, 2 * down, generator), _draw(0, 2 * right, generator)
    crop = F.pad(x, (right, right, down, down))[..., top : top + height, left : left + width]
    return crop.flip(-1) if _draw(0, 1, generator) else crop


def autocontrast(x: Tensor, strength: float) -> Tensor:
    """Stretch every channel of every image to [0, 1].

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: Not used.
    """
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def equalize(x: Tensor, strength: float) -> Tensor:
    """Make the histogram of every channel of every image as flat as 256 levels allow.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: Not used.
    """
    levels = (255 * x).round().long().flatten(2)
    counts = torch.zeros(*levels.shape[:2], 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(2, levels, torch.ones_like(levels))
    brightest = counts.gather(2, levels.amax(2, keepdim=True))
    step = (levels.shape[2] - brightest) // 255
    table = ((counts.cumsum(2) - counts + step // 2) // step.clamp(min=1)).clamp(max=255)
    flat = table.gather(2, levels).view(x.shape).to(x.dtype) / 255
    return torch.where(step.unsqueeze(3) > 0, flat, x)


def posterize(x: Tensor, strength: float) -> Tensor:
    """Keep the highest 4 of 8 bits, or fewer at greater strength.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: The strength.
    """
    width = float(2 ** (4 + int(4 * abs(strength))))
    return (255 * x).round().div(width).floor() * width / 255


def solarize(x: Tensor, strength: float) -> Tensor:
    """Invert the brightest values.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: The strength.
    """
    threshold = 256 - int(256 * abs(strength))
    return torch.where((255 * x).round() >= threshold, 1 - x, x)


def rotate(x: Tensor, strength: float) -> Tensor:
    """Rotate by up to 30 degrees, in whole degrees.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: The strength and direction.
    """
    angle = -math.radians(int(30 * strength))
    (cos, sin), (height, width) = (math.cos(angle), math.sin(angle)), x.shape[-2:]
    centre_x, centre_y = width / 2, height / 2
    across = (cos, sin, centre_x - cos * centre_x - sin * centre_y)
    return _sample(x, across, (-sin, cos, centre_y + sin * centre_x - cos * centre_y))


def shear_x(x: Tensor, strength: float) -> Tensor:
    """Shear rows by up to 0.3.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: The strength and direction.
    """
    return _sample(x, (1, 0.3 * strength, 0), (0, 1, 0))


def shear_y(x: Tensor, strength: float) -> Tensor:
    """Shear columns by up to 0.3.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: The strength and direction.
    """
    return _sample(x, (1, 0, 0), (0.3 * strength, 1, 0))


def translate_x(x: Tensor, strength: float) -> Tensor:
    """Shift sideways by up to a third of the width, in whole pixels.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: The strength and direction.
    """
    return _sample(x, (1, 0, int(strength * x.shape[3] / 3)), (0, 1, 0))


def translate_y(x: Tensor, strength: float) -> Tensor:
    """Shift up or down by up to a third of the height, in whole pixels.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        strength: The strength and direction.
    """
    return _sample(x, (1, 0, 0), (0, 1, int(strength * x.shape[2] / 3)))


OPERATIONS: tuple[Operation, ...] = (
    autocontrast,
    equalize,
    posterize,
    rotate,
    solarize,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)

Row = tuple[float, float, float]


def _sample(x: Tensor, across: Row, down: Row) -> Tensor:
    """Take the value at (x, y) from an affine function of (x, y), in pixels from the corner; outside is grey."""
    height, width = x.shape[-2:]
    u = torch.arange(width, dtype=x.dtype, device=x.device) + 0.5
    v = (torch.arange(height, dtype=x.dtype, device=x.device) + 0.5).unsqueeze(1)
    rows = [a * u + b * v + c for a, b, c in (across, down)]
    grid = torch.stack([2 * rows[0] / width - 1, 2 * rows[1] / height - 1], dim=-1)
    # grid_sample pads with zeros, which are grey once grey is subtracted.
    moved = F.grid_sample(x - 0.5, grid.expand(len(x), -1, -1, -1), mode="bilinear", align_corners=False)
    return moved + 0.5


def _draw(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))
