"""Random numbers per image, independent of the batch it is in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Draws:
    """Random numbers for a batch; those of an image depend only on its pixels and the tag.

    Args:
        images: The batch, uint8.
        tag: What else determines the numbers, such as seed and corruption.
    """

    def __init__(self, images: Tensor, *tag: object) -> None:
        prefix = hashlib.blake2b(repr((*tag, tuple(images.shape[1:]))).encode(), digest_size=4)
        self._keys = [_key(prefix, image) for image in images.numpy()]
        self._generator = torch.Generator()
        self._drawn = 0

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal values, (N, *shape).

        Args:
            shape: Shape of the numbers for one image; N is the number of images.
        """
        return self._fill(torch.float32, shape, lambda row: row.normal_(generator=self._generator))

    def uniform(self, *shape: int) -> Tensor:
        """Draw values uniform in [0, 1), (N, *shape).

        Args:
            shape: Shape of the numbers for one image; N is the number of images.
        """
        return self._fill(torch.float32, shape, lambda row: row.uniform_(generator=self._generator))

    def below(self, high: int, *shape: int) -> Tensor:
        """Draw integers uniform in [0, high), (N, *shape) int32.

        Args:
            high: Upper bound, excluded.
            shape: Shape of the numbers for one image; N is the number of images.
        """
        return self._fill(torch.int32, shape, lambda row: row.random_(0, high, generator=self._generator))

    def _fill(self, dtype: torch.dtype, shape: tuple[int, ...], fill: Callable[[Tensor], Tensor]) -> Tensor:
        out = torch.empty(len(self._keys), *shape, dtype=dtype)
        self._drawn += 1
        for key, row in zip(self._keys, out.unbind(), strict=True):
            # torch's CPU generator uses only 32 bits of its seed, so mix the number of the draw into those.
            self._generator.manual_seed((key + self._drawn * 0x9E3779B9) & 0xFFFFFFFF)
            fill(row)
        return out


def _key(prefix: hashlib.blake2b, image: NDArray[np.uint8]) -> int:
    digest = prefix.copy()
    digest.update(image.data)
    return int.from_bytes(digest.digest(), "little")
