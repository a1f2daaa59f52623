"""Colour corruptions: brightness and saturation; and conversion to grey."""

from __future__ import annotations

import torch
from torch import Tensor

from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws


def luma(x: Tensor) -> Tensor:
    """Convert (..., C, H, W) images to grey, (..., 1, H, W).

    Args:
        x: Grey or RGB images, of 1 or 3 channels; grey images are returned as they are.
    """
    if x.shape[-3] == 1:
        return x
    red, green, blue = x.unbind(-3)
    return (0.299 * red + 0.587 * green + 0.114 * blue).unsqueeze(-3)


def brightness(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Raise the HSV value; hue and saturation, and so the ratios between channels, stay the same.

    Args:
        x: (N, C, H, W), uint8.
        c: `shift`, the amount added to the value, as a fraction of white.
        draws: Unused: this corruption is deterministic.
    """
    value = x.amax(1, keepdim=True).float()
    raised = (value + 255 * c["shift"]).clamp_(max=255)
    return torch.where(value > 0, x * (raised / value), raised)


def saturate(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Change the HSV saturation; hue and value stay the same. Grey counts as unsaturated red.

    Args:
        x: (N, C, H, W), uint8.
        c: `factor` that multiplies the saturation and `shift` that is then added; the result is clipped to [0, 1].
        draws: Unused: this corruption is deterministic.
    """
    if x.shape[1] == 1:
        return x
    levels = x.float()
    value = levels.amax(1, keepdim=True)
    gap = value - levels
    widest = gap.amax(1, keepdim=True)
    saturation = (widest / value.clamp(min=1) * c["factor"] + c["shift"]).clamp_(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0]).view(1, 3, 1, 1)
    share = torch.where(widest > 0, gap / widest.clamp(min=1), red)
    return value - share * (saturation * value)
