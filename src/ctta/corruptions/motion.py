"""Motion blur along a line with ImageMagick's one-sided kernel."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

#: Kernel weights below this change no pixel by a tenth of a grey level.
_NEGLIGIBLE = 1e-5
#: Up to this many values per image, gathering all shifted copies is cheaper than adding them one by one.
_SMALL = 2**14
#: Gathered values processed at once.
_CACHE = 2**17
#: Values of the images whose borders are extended at once.
_CHUNK = 2**16


def motion(x: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Blur each image along its own angle; borders extend the edge pixel.

    Args:
        x: (N, C, H, W).
        radius: Half the length of the kernel, in pixels.
        sigma: Standard deviation of the kernel, in pixels.
        degrees: One angle per image, (N,).
    """
    weights = _weights(radius, sigma)
    steps = torch.arange(len(weights))
    radians = torch.deg2rad(degrees.double())[:, None]
    down = (steps * radians.sin() - 0.5).ceil().long()  # (N, taps)
    across = (steps * radians.cos() - 0.5).ceil().long()
    blur = _gathered if x[0].numel() <= _SMALL else _accumulated
    out = torch.empty_like(x, dtype=torch.float32)
    (left, right), (top, bottom) = _margins(across), _margins(down)
    together = max(1, _CHUNK // x[0].numel())
    parts = (torch.split(values, together) for values in (x, down + top, across + left, out))
    for some, tops, lefts, blurred in zip(*parts, strict=True):
        blur(_extended(some, left, right, top, bottom), tops, lefts, weights, blurred)
    return out


def _extended(x: Tensor, left: int, right: int, top: int, bottom: int) -> Tensor:
    """Extend the edge pixels: copies of whole rows take a third of the time of torch's padding."""
    height, width = x.shape[-2:]
    out = x.new_empty(*x.shape[:2], top + height + bottom, left + width + right)
    middle = out[:, :, top : top + height]
    middle[..., left : left + width] = x
    middle[..., :left] = x[..., :1]
    middle[..., left + width :] = x[..., -1:]
    out[:, :, :top] = middle[:, :, :1]
    out[:, :, top + height :] = middle[:, :, -1:]
    return out


def _margins(shifts: Tensor) -> tuple[int, int]:
    """Return how far the shifts reach beyond the first and beyond the last pixel of an axis."""
    return max(0, -int(shifts.min())), max(0, int(shifts.max()))


@lru_cache(maxsize=16)
def _weights(radius: int, sigma: float) -> Tensor:
    weights = torch.exp(-(torch.arange(2 * radius + 1, dtype=torch.float64) ** 2) / (2 * max(sigma, 1e-9) ** 2))
    weights = weights[weights > _NEGLIGIBLE * weights.sum()]
    return weights / weights.sum()


def _gathered(padded: Tensor, tops: Tensor, lefts: Tensor, weights: Tensor, blurred: Tensor) -> None:
    n, channels, height, width = blurred.shape
    plane, row = padded.stride()[1:3]
    last = (channels - 1) * plane + (height - 1) * row + width - 1
    # A view of every window of the image's shape, indexed by the position of its first value.
    windows = padded.as_strided((padded.numel() - last, channels, height, width), (1, plane, row, 1))
    first = torch.arange(n)[:, None] * padded.stride(0) + tops * row + lefts
    together = max(1, _CACHE // (len(weights) * blurred[0].numel()))
    shifted = blurred.new_empty(together * len(weights), channels, height, width)  # reused, to stay within the cache
    kernel = weights.float().expand(together, 1, -1)
    flat = blurred.view(n, 1, -1)
    for some, out in zip(torch.split(first, together), torch.split(flat, together), strict=True):
        values = shifted[: some.numel()]
        torch.index_select(windows, 0, some.flatten(), out=values)
        torch.bmm(kernel[: len(some)], values.view(len(some), len(weights), -1), out=out)


def _accumulated(padded: Tensor, tops: Tensor, lefts: Tensor, weights: Tensor, blurred: Tensor) -> None:
    _, plane, row, _ = padded.stride()
    for i, result in enumerate(blurred.zero_().unbind()):
        taps: dict[tuple[int, int], float] = {}
        for top, left, weight in zip(tops[i].tolist(), lefts[i].tolist(), weights.tolist(), strict=True):
            taps[top, left] = taps.get((top, left), 0.0) + weight  # several steps may round to one pixel
        for (top, left), weight in taps.items():
            window = padded.as_strided(result.shape, (plane, row, 1), i * padded.stride(0) + top * row + left)
            result.add_(window, alpha=weight)
