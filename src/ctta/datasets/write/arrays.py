"""Corrupt an array: `<corruption>.npy` with the severities stacked, and labels.npy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctta._system.digests import sha256_of
from ctta._system.files import write_atomically
from ctta.corruptions import corrupt
from ctta.datasets.array_files import npy_bytes, read_npy, read_npz
from ctta.datasets.checks import images_of, labels_of, refuse_out_of_range
from ctta.datasets.write.corrupt_dataset import Recipe
from ctta.errors import BadData, ParameterError

_CHUNK = 500


class ArraySource:
    """Corrupt the images of an npz with `x` and `y`, or of an npy with labels in a second one.

    Args:
        path: The npz, or the npy of images.
        labels: The npy of labels; required for an npy of images, and not used for an npz.
    """

    def __init__(self, path: Path, labels: Path | None = None) -> None:
        self.path = path
        x, y = _read(path, labels)
        self.x = images_of(x, path)
        self.y = labels_of(y, labels or path, count=len(x), classes=None)
        refuse_out_of_range(self.x, path)
        self.images = len(self.x)
        self.side = min(self.x.shape[2:])

    def describe(self) -> dict[str, object]:
        """The input's name and digest."""
        return {
            "input": {"name": self.path.name, "sha256": sha256_of(self.path), "images": self.images},
            "labels_sha256": _digest(self.y),
            "format": "npy",
        }

    def parts(self, recipe: Recipe) -> list[str]:
        """Return the files to make, one for each corruption.

        Args:
            recipe: The corruptions, severities, seed and scale.
        """
        return [f"{name}.npy" for name in recipe.corruptions]

    def per_part(self, recipe: Recipe) -> int:
        """Return the number of images in a file: every image at every severity.

        Args:
            recipe: The corruptions, severities, seed and scale.
        """
        return self.images * len(recipe.severities)

    def make(self, part: str, out: Path, recipe: Recipe, advance: Callable[[int], None]) -> None:
        """Write one corruption, its severities stacked, in pieces that fit into memory.

        Args:
            part: The file to write, `<corruption>.npy`.
            out: The output folder.
            recipe: The corruptions, severities, seed and scale.
            advance: Called with the number of images just made, after each batch of them.
        """
        _, channels, height, width = self.x.shape
        temporary = out / f".{part}.tmp"
        shape = (self.per_part(recipe), height, width, channels)
        file = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        begin = 0
        for severity in recipe.severities:
            for first in range(0, self.images, _CHUNK):
                images = _levels(self.x[first : first + _CHUNK])
                found = corrupt(
                    images, part.removesuffix(".npy"), severity=severity, seed=recipe.seed, scale=recipe.scale
                )
                file[begin : begin + len(images)] = found.permute(0, 2, 3, 1).numpy()
                begin += len(images)
                advance(len(images))
        file.flush()
        del file
        temporary.replace(out / part)

    def finish(self, out: Path, recipe: Recipe) -> None:
        """Write labels.npy, with the labels repeated for each severity.

        Args:
            out: The output folder.
            recipe: The corruptions, severities, seed and scale.
        """
        y = np.tile(self.y.numpy(), len(recipe.severities))
        write_atomically(out / "labels.npy", npy_bytes(y.astype(np.uint8 if y.max() < 256 else np.int64)))

    def digest(self, part: str, out: Path) -> str:
        """Return the SHA-256 of a file.

        Args:
            part: The file, one of `parts`.
            out: The output folder.

        Raises:
            BadData: If the file is missing or cannot be read.
        """
        try:
            return sha256_of(out / part)
        except OSError as error:
            raise BadData(f"{out / part} cannot be read: {error.strerror}.") from error


def _read(path: Path, labels: Path | None) -> tuple[NDArray[Any], NDArray[Any]]:
    if path.suffix == ".npz":
        return read_npz(path, hint="Save your images with np.savez(path, x=images, y=labels).")
    if labels is None:
        raise ParameterError(f"{path} has no labels: name an npy of them with --labels, or save an npz.")
    return read_npy(path), read_npy(labels)


def _levels(images: Tensor) -> Tensor:
    return images if images.dtype == torch.uint8 else (images.float() * 255).round().to(torch.uint8)


def _digest(y: Tensor) -> str:
    return hashlib.sha256(y.numpy().tobytes()).hexdigest()
