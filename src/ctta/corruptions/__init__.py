"""The image corruptions of Hendrycks & Dietterich (2019), applied to batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ctta.corruption_names import CORRUPTIONS, HELD_OUT
from ctta.corruptions import blur, colour, digital, glass, jpeg, noise, spatter, weather
from ctta.corruptions.constants import Constants, Scale, constants_at
from ctta.corruptions.draws import Draws
from ctta.corruptions.frost_sheets import frost_source
from ctta.errors import (
    ImageDtype,
    ImageRange,
    ImageShape,
    NonFiniteImages,
    ParameterError,
    UnknownStream,
)

__all__ = ["CORRUPTIONS", "HELD_OUT", "constants", "corrupt", "corrupt_at", "frost_source"]

_Corruption = Callable[[Tensor, Constants, Draws], Tensor]

_FUNCTIONS: Final[dict[str, _Corruption]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": glass.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": colour.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": jpeg.jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": spatter.spatter,
    "saturate": colour.saturate,
}

_DETERMINISTIC: Final = frozenset(
    {
        *("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate"),
        *("jpeg_compression", "gaussian_blur", "saturate"),
    }
)
_SMALLEST_SIDE: Final = 16
#: Values processed at once: bounds memory, and is little enough for the allocator to keep it and not page it in anew.
_CHUNK: Final = 2**18
#: The same for corruptions with larger intermediate results, or with few, or with many steps that more images share.
_CHUNKS: Final = {
    **{"defocus_blur": 2**16, "elastic_transform": 2**17},
    **{"snow": 2**19, "fog": 2**19, "contrast": 2**20, "pixelate": 2**20},
}
#: Added before truncation: a result rounded to just below a whole grey level would otherwise lose a full level.
_SLACK: Final = 2**-10


def corrupt(images: Tensor, name: str, *, severity: int = 5, seed: int = 0, scale: Scale | None = None) -> Tensor:
    """Corrupt a batch of images.

    Like the published generator, this works on 8-bit images and truncates the results to 8 bits: floats are first
    rounded to the nearest grey level, and returned as k/255. The random numbers of an image depend on its grey levels,
    `seed`, `name` and `severity`, but not on the rest of the batch.

    Args:
        images: (N, C, H, W) with 1 or 3 channels and sides of at least 16 pixels; uint8, or floats in [0, 1].
        name: One of `CORRUPTIONS` or `HELD_OUT`.
        severity: 1 (mild) to 5 (strong).
        seed: Seed of the random numbers.
        scale: "cifar" or "imagenet" selects the published constants for that dataset. By default they are chosen, or
            interpolated, by image size.

    Returns:
        The corrupted images, with the dtype and device of `images`.

    Raises:
        UnknownStream: If there is no such corruption.
        ParameterError: If `severity` or `scale` is out of range.
        ImageDtype, ImageShape, ImageRange, NonFiniteImages: If the images cannot be corrupted.

    Example:
        >>> import torch
        >>> from ctta.corruptions import corrupt
        >>> corrupt(torch.rand(8, 3, 32, 32), "fog", severity=3).shape
        torch.Size([8, 3, 32, 32])
    """
    _check_severity(severity)
    return corrupt_at(images, name, severity, seed=seed, scale=scale)


def corrupt_at(images: Tensor, name: str, severity: float, *, seed: int = 0, scale: Scale | None = None) -> Tensor:
    """Corrupt a batch of images at any severity, for streams in which the severity changes in small steps.

    The constants are interpolated linearly between the published severities, and below 1 between those of severity 1
    and the values of `ctta.corruptions.zero`; shot noise is interpolated in the inverse number of photons. Constants
    that count pixels or rounds are rounded.

    Args:
        images: As for `corrupt`.
        name: One of `CORRUPTIONS` or `HELD_OUT`.
        severity: A number from 0 to 5. At a whole severity of at least 1 the result is that of `corrupt`, bit for bit;
            at 0 it is a copy of the images.
        seed: Seed of the random numbers, which also depend on the severity.
        scale: As for `corrupt`.

    Example:
        >>> import torch
        >>> from ctta.corruptions import corrupt_at
        >>> x = torch.rand(1, 3, 32, 32)
        >>> bool((corrupt_at(x, "fog", 0.25) - x).abs().mean() < (corrupt_at(x, "fog", 4.5) - x).abs().mean())
        True
    """
    _check_name(name)
    _check_any_severity(severity)
    _check_scale(scale)
    _check_images(images)
    if severity == 0:
        return images.detach().clone()
    if severity == int(severity):
        severity = int(severity)  # 5 and 5.0 must draw the same random numbers
    levels, seed = _to_levels(images), int(seed)
    c = constants_at(name, severity, min(images.shape[-2:]), scale)
    per_chunk = max(1, _CHUNKS.get(name, _CHUNK) // levels[0].numel())
    result = torch.empty_like(levels)
    for part, out in zip(torch.split(levels, per_chunk), torch.split(result, per_chunk), strict=True):
        _apply(part, out, name, c, seed, severity)
    if images.dtype != torch.uint8:
        result = result.to(images.dtype) / 255
    return result.to(images.device)


def constants(name: str, *, severity: float = 5, side: int = 32, scale: Scale | None = None) -> dict[str, float]:
    """Return the constants that `corrupt` and `corrupt_at` use.

    Args:
        name: One of `CORRUPTIONS` or `HELD_OUT`.
        severity: A number from 0 to 5. `corrupt` takes only whole ones from 1.
        side: The shorter side of the images, in pixels.
        scale: "cifar", "imagenet", or None to choose by `side`.
    """
    _check_name(name)
    _check_any_severity(severity)
    _check_scale(scale)
    return constants_at(name, severity, side, scale)


def _apply(levels: Tensor, out: Tensor, name: str, c: Constants, seed: int, severity: float) -> None:
    drawn_for = levels[:0] if name in _DETERMINISTIC else levels
    result = _FUNCTIONS[name](levels, c, Draws(drawn_for, seed, name, severity))
    if result.dtype == torch.uint8:
        out.copy_(result)
    else:
        result.add_(_SLACK).clamp_(0, 255)
        np.copyto(out.numpy(), result.numpy(), casting="unsafe")  # torch converts to uint8 six times slower


def _to_levels(images: Tensor) -> Tensor:
    images = images.detach().cpu()
    if images.dtype != torch.uint8:
        images = (images.float() * 255).round_().to(torch.uint8)
    return images.contiguous()


def _check_name(name: str) -> None:
    if name not in _FUNCTIONS:
        raise UnknownStream(name, _FUNCTIONS)


def _check_severity(severity: int) -> None:
    if isinstance(severity, bool) or not isinstance(severity, int) or not 1 <= severity <= 5:
        raise ParameterError(f"The 'severity' of a corruption must be an integer in 1..5. Got {severity!r}.")


def _check_any_severity(severity: float) -> None:
    if isinstance(severity, bool) or not isinstance(severity, (int, float)) or not 0 <= severity <= 5:
        raise ParameterError(f"The 'severity' of a corruption must be a number from 0 to 5. Got {severity!r}.")


def _check_scale(scale: str | None) -> None:
    if scale not in ("cifar", "imagenet", None):
        raise ParameterError(
            f"The 'scale' of a corruption must be 'cifar', 'imagenet' or None (by image size). Got {scale!r}."
        )


def _check_images(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise ImageDtype(
            f"Images to corrupt must be a tensor; got {type(images).__name__}. "
            "Convert them with torch.as_tensor(images)."
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ImageDtype(
            f"Images to corrupt must be uint8, or floats in [0, 1]; got {images.dtype}. "
            "Convert grey levels with images.to(torch.uint8)."
        )
    shape = tuple(images.shape)
    if images.ndim != 4 or shape[0] == 0 or shape[1] not in (1, 3) or min(shape[2:]) < _SMALLEST_SIDE:
        raise ImageShape(
            f"Images to corrupt must be (N, C, H, W) with N >= 1, C 1 or 3, sides >= {_SMALLEST_SIDE}; got {shape}. "
            "Convert (N, H, W, C) with permute(0, 3, 1, 2)."
        )
    if images.dtype == torch.uint8:
        return
    low, high = float(images.min()), float(images.max())
    if not bool(images.isfinite().all()):
        raise NonFiniteImages("Images to corrupt must be finite; got NaN or Inf. Check the data loader.")
    if low < 0 or high > 1:
        raise ImageRange(
            f"Float images must lie in [0, 1]; got values in [{low:.2f}, {high:.2f}]. "
            "Corrupt before normalising, or pass uint8."
        )
