"""Separable filters as matrices: two products, whatever the kernel length and the border."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

import torch
from torch import Tensor

from ctta.corruptions.bands import multiply_across, multiply_down

Border = Literal["nearest", "reflect"]

#: Matrices with at least this many columns are applied band by band.
_BANDED: Final = 128


def separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Filter images along both axes.

    Args:
        x: (N, C, H, W).
        rows: Matrix (h, H) applied vertically.
        columns: Matrix (w, W) applied horizontally.
    """
    return apply_down(apply_across(x, columns), rows)


# One product per image or channel, so that a result does not depend on the size of the batch.


def apply_across(x: Tensor, columns: Tensor) -> Tensor:
    """Apply a matrix (w, W) to the rows of (N, C, H, W).

    Args:
        x: (N, C, H, W).
        columns: The matrix, (w, W); the result is (N, C, H, w).
    """
    n, channels, height, width = x.shape
    lines = x.reshape(n, channels * height, width)
    banded = width >= _BANDED
    product = multiply_across(lines, columns) if banded else torch.bmm(lines, columns.T.expand(n, -1, -1))
    return product.view(n, channels, height, -1)


def apply_down(x: Tensor, rows: Tensor) -> Tensor:
    """Apply a matrix (h, H) to the columns of (N, C, H, W).

    Args:
        x: (N, C, H, W).
        rows: The matrix, (h, H); the result is (N, C, h, W).
    """
    n, channels, height, width = x.shape
    planes = x.reshape(n * channels, height, width)
    banded = height >= _BANDED
    product = multiply_down(rows, planes) if banded else torch.bmm(rows.expand(n * channels, -1, -1), planes)
    return product.view(n, channels, -1, width)


def gaussian(x: Tensor, sigma: float, *, truncate: float = 4.0, border: Border = "nearest") -> Tensor:
    """Blur images with a Gaussian.

    Args:
        x: (N, C, H, W).
        sigma: Standard deviation in pixels.
        truncate: Radius of the kernel, in sigmas.
        border: "nearest" extends the edge pixel; "reflect" mirrors the image, edge pixel included.
    """
    rows = _gaussian_matrix(x.shape[2], sigma, truncate, border)
    columns = _gaussian_matrix(x.shape[3], sigma, truncate, border)
    return separable(x, rows, columns)


@lru_cache(maxsize=64)
def _gaussian_matrix(size: int, sigma: float, truncate: float, border: Border) -> Tensor:
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.double() / max(sigma, 1e-9)) ** 2)
    weights /= weights.sum()
    fold: Callable[[Tensor, int], Tensor] = _nearest if border == "nearest" else _reflect
    sources = fold(torch.arange(size)[:, None] + offsets, size)  # (size, taps)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, sources, weights.expand_as(sources))
    return matrix.float()


def _nearest(index: Tensor, size: int) -> Tensor:
    return index.clamp(0, size - 1)


def _reflect(index: Tensor, size: int) -> Tensor:
    index = index.remainder(2 * size)
    return torch.minimum(index, 2 * size - 1 - index)


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve images with a kernel; borders are mirrored without repeating the edge pixel.

    Args:
        x: (N, C, H, W).
        kernel: Symmetric, with odd sides. It must not be changed afterwards.
    """
    height, width = x.shape[-2:]
    down, across = kernel.shape[0] // 2, kernel.shape[1] // 2
    padded = torch.nn.functional.pad(x, (across, across, down, down), mode="reflect")
    size = (_smooth(height + 2 * down), _smooth(width + 2 * across))
    spectrum = torch.fft.rfft2(padded, s=size).mul_(_spectrum(kernel, size))
    rows = slice(2 * down, 2 * down + height)
    inverse = _inverse if _bits_are_same(x.shape[1], size, (rows.start, rows.stop)) else _whole_inverse
    return inverse(spectrum, size, rows)[..., 2 * across : 2 * across + width]


def _whole_inverse(spectrum: Tensor, size: tuple[int, int], rows: slice) -> Tensor:
    full: Tensor = torch.fft.irfft2(spectrum, s=size)
    return full[..., rows, :]


def _inverse(spectrum: Tensor, size: tuple[int, int], rows: slice) -> Tensor:
    """As `_whole_inverse`: columns are transformed faster where they are contiguous, and then only the rows wanted."""
    columns = torch.fft.ifft(spectrum.mT.contiguous())[..., rows]
    lines: Tensor = torch.fft.irfft(columns.mT, n=size[1])
    return lines


@lru_cache(maxsize=64)
def _bits_are_same(channels: int, size: tuple[int, int], rows: tuple[int, int]) -> bool:
    """Tell whether `_inverse` has the bits of `_whole_inverse`, by trying it on random numbers."""
    x = torch.rand(1, channels, *size, generator=torch.Generator().manual_seed(0)) * 255
    spectrum = torch.fft.rfft2(x)
    return torch.equal(_inverse(spectrum, size, slice(*rows)), _whole_inverse(spectrum, size, slice(*rows)))


@lru_cache(maxsize=16)
def _spectrum(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    spectrum: Tensor = torch.fft.rfft2(kernel, s=size)
    return spectrum


def _smooth(n: int) -> int:
    """Return the least number >= n without a prime factor above 5, for which the FFT is fast."""
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1
