"""Check batches of images."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ctta.errors import ImageDtype, ImageRange, ImageShape

# Resizing and decoding overshoot [0, 1] by rounding; normalised images exceed it by far.
_SLACK = 1e-3


def check_images(x: Tensor) -> Tensor | None:
    """Check the dtype, shape and range of a batch of images.

    Args:
        x: The batch: floats in [0, 1] of shape (N, C, H, W). NaN and Inf are allowed here.

    Returns:
        Which images (N,) contain NaN or Inf, or None if none does.

    Raises:
        ImageDtype: If it is not a float tensor.
        ImageShape: If it is not four-dimensional, or empty.
        ImageRange: If finite values lie outside [0, 1].

    Example:
        >>> x = torch.zeros(2, 3, 4, 4)
        >>> check_images(x) is None
        True
        >>> x[1, 0, 0, 0] = float("nan")
        >>> check_images(x)
        tensor([False,  True])
    """
    if not isinstance(x, Tensor):
        raise ImageDtype(
            f"Images must be a float tensor with values in [0, 1]; got {type(x).__name__}. "
            "Convert an array with torch.from_numpy, and pass the images only, without their labels."
        )
    if not x.is_floating_point():
        raise ImageDtype(
            f"Images must be a float tensor with values in [0, 1]; got {x.dtype}. Divide uint8 images by 255."
        )
    if x.dim() != 4 or 0 in x.shape:
        raise ImageShape(
            f"Images must be a non-empty (N, C, H, W) tensor; got {tuple(x.shape)}. "
            "Add the batch dimension with x.unsqueeze(0), and leave out empty batches."
        )
    low, high = (bound.item() for bound in x.aminmax())
    broken = None
    if not (math.isfinite(low) and math.isfinite(high)):
        broken = ~x.isfinite().flatten(1).all(1)
        low, high = (bound.item() for bound in torch.where(x.isfinite(), x, 0.5).aminmax())
    if low < -_SLACK or high > 1 + _SLACK:
        raise ImageRange(
            f"Images must be floats in [0, 1]; got values in [{low:.4g}, {high:.4g}]. "
            + (
                "Divide grey levels by 255."
                if low >= 0 and high > 2
                else "Do not normalise in the loader: give mean and std to ctta.adapt or ctta.Classifier instead."
            )
        )
    return broken


def channel_count(channels: int) -> str:
    """Return a number of channels in words, such as "1 channel" or "3 channels".

    Args:
        channels: The number.
    """
    return f"{channels} channel{'' if channels == 1 else 's'}"


def channel_hint(x: Tensor, channels: int) -> str:
    """Say what to do with images that have another number of channels than a network expects.

    Args:
        x: The images (N, C, H, W).
        channels: The number of channels that the network expects.
    """
    if x.shape[-1] == channels:
        return "Put the channels first with x.permute(0, 3, 1, 2)."
    if x.shape[1] == 1:
        return f"Repeat a grey channel with x.expand(-1, {channels}, -1, -1)."
    if (x.shape[1], channels) == (3, 1):
        return "Turn colours into grey levels with x.mean(1, keepdim=True)."
    return f"Drop further channels, such as alpha, with x[:, :{channels}]."
