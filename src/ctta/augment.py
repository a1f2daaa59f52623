"""The random augmentation of CoTTA, which RMT, SANTA, RoTTA, ROID and DMSE use too.

Each parameter is drawn once for the whole batch; only the noise differs from pixel to pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

AnyView = Callable[[Tensor, torch.Generator], Tensor]
Range = tuple[float, float]

_GREY = (0.2989, 0.587, 0.114)
_BLUR_RADIUS = 2


@dataclass(frozen=True)
class View:
    """A random view of a batch: colour jitter, a small affine map, blur, flip and noise. The defaults are CoTTA's.

    Args:
        brightness: Range of the factor by which values are multiplied.
        contrast: Range of the factor for the difference from the mean grey.
        saturation: Range of the factor for the difference from the grey image.
        hue: Range of the hue shift, as a share of the colour circle.
        gamma: Range of the exponent of the values.
        degrees: The largest rotation in degrees.
        translate: The largest shift, as a share of the padded image.
        scale: Range of the zoom factor.
        blur: Range of the sigma of the Gaussian blur, or None for no blur.
        noise: Standard deviation of the added noise.
        border: How to fill pixels outside the image: "edge" repeats the border, "reflect" mirrors the image.
        flip: Flip left and right with probability one half.

    Example:
        >>> x = torch.rand(4, 3, 16, 16)
        >>> View(noise=0.0)(x, torch.Generator().manual_seed(0)).shape
        torch.Size([4, 3, 16, 16])
    """

    brightness: Range = (0.6, 1.4)
    contrast: Range = (0.7, 1.3)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.06, 0.06)
    gamma: Range = (0.7, 1.3)
    degrees: float = 15.0
    translate: float = 1 / 16
    scale: Range = (0.9, 1.1)
    blur: Range | None = (0.001, 0.5)
    noise: float = 0.005
    border: Literal["edge", "reflect"] = "edge"
    flip: bool = True

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random view of a batch.

        Args:
            x: Images (N, C, H, W) in [0, 1].
            generator: Draws the parameters of the view.
        """

        def draw(low: float, high: float) -> float:
            return torch.empty(1).uniform_(low, high, generator=generator).item()

        # Each operation with its range and the value that changes nothing.
        colours = (
            (adjust_brightness, self.brightness, 1.0),
            (adjust_contrast, self.contrast, 1.0),
            (adjust_saturation, self.saturation, 1.0),
            (adjust_hue, self.hue, 0.0),
            (adjust_gamma, self.gamma, 1.0),
        )
        layout = torch.contiguous_format if x.is_contiguous() else torch.channels_last
        x = x.contiguous().clamp(0, 1)  # contiguous, because the colour operations split the channels
        for i in torch.randperm(len(colours), generator=generator).tolist():
            adjust, span, neutral = colours[i]
            value = draw(*span)
            x = x if value == neutral else adjust(x, value)

        angle = draw(-self.degrees, self.degrees)
        # The published chain shifts a padded image, twice as wide, by a share of its size in whole pixels.
        height, width = (side + 2 * (side // 2) for side in x.shape[-2:])
        shift_x = round(draw(-self.translate * width, self.translate * width))
        shift_y = round(draw(-self.translate * height, self.translate * height))
        scale = draw(*self.scale)
        sigma = None if self.blur is None else draw(*self.blur)
        flip = torch.rand(1, generator=generator).item() < 0.5 and self.flip
        x = warp(x, angle=angle, shift=(shift_x, shift_y), scale=scale, sigma=sigma, flip=flip, border=self.border)
        if self.noise:
            x = x.add(torch.randn(x.shape, generator=generator).to(x), alpha=self.noise)
        # Keep the layout of the input: some networks must not be given channels_last.
        return x.clamp(0, 1).contiguous(memory_format=layout)


def adjust_brightness(x: Tensor, factor: float) -> Tensor:
    """Multiply every value by a factor.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        factor: The factor.
    """
    return (x * factor).clamp_(0, 1)


def adjust_contrast(x: Tensor, factor: float) -> Tensor:
    """Blend with the mean grey of each image.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        factor: The share of the image; above 1 raises the contrast.
    """
    return _blend(x, _grey(x.mean(dim=(2, 3), keepdim=True)), factor)


def adjust_saturation(x: Tensor, factor: float) -> Tensor:
    """Blend with the grey image. Images that are not RGB are returned unchanged.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        factor: The share of the colour image.
    """
    return _blend(x, _grey(x), factor) if x.shape[1] == 3 else x


def adjust_hue(x: Tensor, turn: float) -> Tensor:
    """Shift the hue. Images that are not RGB are returned unchanged.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        turn: The shift, as a share of the colour circle.
    """
    if x.shape[1] != 3:
        return x
    r, g, b = x.unbind(1)
    value = x.amax(1)
    chroma = value - x.amin(1)
    safe = torch.where(chroma == 0, 1, chroma)
    # Sextants of the hue circle: red at 0, green at 2, blue at 4. Ties go to the first channel.
    hue = torch.where(r == value, (g - b) / safe, torch.where(g == value, 2 + (b - r) / safe, 4 + (r - g) / safe))
    # A channel is darkest opposite its own hue. Turning these three numbers instead of every pixel, and keeping them
    # in the range of the hue, leaves no difference above 6.
    darkest = torch.tensor([(at - 6 * turn + 1) % 6 - 1 for at in (3, 5, 1)], dtype=x.dtype, device=x.device)
    away = (hue.unsqueeze(1) - darkest.view(1, 3, 1, 1)).abs_()
    dark = away.sub_(3).abs_().sub_(1).clamp_(0, 1)  # 1 within a sextant of the darkest hue, 0 two sextants away
    return torch.addcmul(value.unsqueeze(1), chroma.unsqueeze(1), dark, value=-1).clamp_(0, 1)


def adjust_gamma(x: Tensor, gamma: float) -> Tensor:
    """Raise every value to a power.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        gamma: The exponent.
    """
    return x.clamp(1e-8, 1).pow_(gamma)


def warp(
    x: Tensor,
    *,
    angle: float,
    shift: tuple[int, int],
    scale: float,
    sigma: float | None,
    flip: bool,
    border: Literal["edge", "reflect"] = "edge",
) -> Tensor:
    """Pad, rotate, shift, scale, blur 5x5, crop the centre, and flip.

    Only what the crop shows is computed: sampling with clamped or mirrored coordinates replaces the padding, and the
    blur needs no more than a margin of its radius around the crop.

    Args:
        x: Images (N, C, H, W) in [0, 1].
        angle: Rotation in degrees.
        shift: Shift to the right and down, in pixels.
        scale: Zoom factor.
        sigma: Sigma of the blur, or None for no blur.
        flip: Whether to flip left and right.
        border: How to fill pixels outside the image: "edge" repeats the border, "reflect" mirrors the image.
    """
    height, width = x.shape[-2:]
    margin = 0 if sigma is None else _BLUR_RADIUS
    u = _offsets(width, margin, x)
    v = _offsets(height, margin, x).unsqueeze(1)
    if flip:
        u = -u
    u, v = u - shift[0], v - shift[1]
    cos, sin = math.cos(math.radians(angle)) / scale, math.sin(math.radians(angle)) / scale
    grid = torch.stack(
        [(cos * u + sin * v) * 2 / max(width - 1, 1), (cos * v - sin * u) * 2 / max(height - 1, 1)], dim=-1
    )
    padding = "border" if border == "edge" else "reflection"
    grid = grid.expand(len(x), -1, -1, -1)
    x = F.grid_sample(x, grid, mode="bilinear", padding_mode=padding, align_corners=True)
    return x if sigma is None else _blur(x, sigma)


def _offsets(side: int, margin: int, like: Tensor) -> Tensor:
    half = (side - 1) / 2
    return torch.arange(-margin, side + margin, dtype=like.dtype, device=like.device) - half


def _blur(x: Tensor, sigma: float) -> Tensor:
    """Gaussian 5x5 blur of the inner pixels: the result is smaller by the radius on each side."""
    at = torch.arange(-_BLUR_RADIUS, _BLUR_RADIUS + 1, dtype=x.dtype, device=x.device)
    kernel = (-0.5 * (at / sigma) ** 2).exp()
    kernel = kernel / kernel.sum()
    channels = x.shape[1]
    # A depthwise convolution is seven times faster in this layout.
    x = x.to(memory_format=torch.channels_last)
    x = F.conv2d(x, kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)
    return F.conv2d(x, kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    r, g, b = x.unbind(1)
    return (_GREY[0] * r + _GREY[1] * g + _GREY[2] * b).unsqueeze(1)


def _blend(x: Tensor, other: Tensor, factor: float) -> Tensor:
    return torch.add((1 - factor) * other, x, alpha=factor).clamp_(0, 1)
