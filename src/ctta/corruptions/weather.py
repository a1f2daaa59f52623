"""Weather corruptions: snow, frost, fog."""

from __future__ import annotations

import torch
from torch import Tensor

from ctta.corruptions.colour import luma
from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws
from ctta.corruptions.filters import separable
from ctta.corruptions.frost_sheets import sheets
from ctta.corruptions.motion import motion
from ctta.corruptions.plasma import plasma
from ctta.corruptions.zoom import central_crop, zoom_matrix


def snow(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Whiten the image and add streaks of falling flakes.

    Args:
        x: (N, C, H, W), uint8.
        c: `mean`, `sd`, `zoom` and `threshold` of the flakes, `radius` and `sigma` of their motion blur in pixels, and
            `keep`, the weight of the original against the whitened image.
        draws: Random numbers for the flakes and the angle of their fall.
    """
    height, width = x.shape[-2:]
    # The published code zooms into a larger noise field; draw only the centre, which is all that remains.
    h, w = central_crop(height, c["zoom"])[0], central_crop(width, c["zoom"])[0]
    field = draws.normal(1, h, w).mul_(c["sd"]).add_(c["mean"])
    flakes = separable(field, zoom_matrix(height, c["zoom"]), zoom_matrix(width, c["zoom"]))
    flakes.masked_fill_(flakes < c["threshold"], 0).clamp_(0, 1).mul_(255).floor_()
    degrees = draws.uniform(1).flatten() * 90 - 135
    layer = motion(flakes, int(c["radius"]), c["sigma"], degrees).round_()

    levels = x.float()
    whitened = torch.maximum(levels, luma(levels).mul(1.5).add_(127.5)).mul_(1 - c["keep"])
    return levels.mul_(c["keep"]).add_(whitened).add_(layer + layer.rot90(2, (2, 3)))


def frost(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Blend in a random crop of a frost texture.

    Args:
        x: (N, C, H, W), uint8.
        c: `image` and `frost`, the weights of the image and the texture, and `zoom`, the scale of the texture.
        draws: Random numbers for the choice of texture and crop.
    """
    channels, height, width = x.shape[1:]
    panes = sheets(c["zoom"], height, width)
    crops = []
    for which, down, across in draws.uniform(3).tolist():
        pane = panes[int(which * len(panes))]
        top, left = int(down * (pane.shape[1] - height)), int(across * (pane.shape[2] - width))
        crops.append(pane[:, top : top + height, left : left + width])
    layer = torch.stack(crops).float()
    return (x * c["image"]).add_((luma(layer) if channels == 1 else layer).mul_(c["frost"]))


def fog(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Blend in a plasma fractal, keeping the brightest value.

    Args:
        x: (N, C, H, W), uint8.
        c: `strength` of the fog as a fraction of white, and `decay` of the fractal; a larger decay gives smoother fog.
        draws: Random numbers for the fractal.
    """
    height, width = x.shape[-2:]
    size = 1 << (max(height, width) - 1).bit_length()
    haze = plasma(draws.uniform(size, size).mul_(2).sub_(1), c["decay"])[:, None, :height, :width]
    brightest = x.flatten(1).amax(1).float()[:, None, None, None]
    strength = 255 * c["strength"]
    return (x + haze * strength).mul_(brightest / (brightest + strength))
