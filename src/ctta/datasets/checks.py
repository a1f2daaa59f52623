"""Checks of arrays that hold images and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctta.errors import BadData

_MOST_CLASSES = 1 << 31  # above it a label is a mistake, and may not fit into int64
_CHUNK = 1 << 24  # numbers checked at a time


def images_of(x: NDArray[Any], path: Path) -> Tensor:
    """Return an array of images as a tensor (N, C, H, W) of uint8 or floats.

    Nothing is copied unless the array has the byte order of another machine.

    Args:
        x: Images (N, H, W, C) or (N, C, H, W) with 1 or 3 channels, uint8 or floats.
        path: The file they are from, for messages.
    """
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise BadData(f"The images of {path} must be uint8 or floats in [0, 1]; got {x.dtype}.")
    if x.ndim != 4 or 0 in x.shape:
        raise BadData(f"The images of {path} must be an array (N, H, W, 3) or (N, 3, H, W); got {x.shape}.")
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.shape[3] in (1, 3):
        return torch.from_numpy(x).permute(0, 3, 1, 2)
    if x.shape[1] in (1, 3):
        return torch.from_numpy(x)
    raise BadData(f"The images of {path} must have 1 or 3 channels, first or last; got {x.shape}.")


def labels_of(y: NDArray[Any], path: Path, *, count: int, classes: int | None) -> Tensor:
    """Return class labels as an int64 tensor (N,).

    Args:
        y: An array of integers, one for each image.
        path: The file they are from, for messages.
        count: The number of images.
        classes: The number of classes; a label that is not below it is refused. None if it is not known.
    """
    if y.dtype.kind not in "iu" or y.shape != (count,) or count == 0:
        raise BadData(f"The labels of {path} must be {count} integers; got {y.dtype} {y.shape}.")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= (_MOST_CLASSES if classes is None else classes):
        wrong = low if low < 0 else high
        limit = "" if classes is None else f"..{classes - 1}"
        raise BadData(f"The labels of {path} must be classes in 0{limit}; got {wrong}.")
    return torch.from_numpy(y.astype(np.int64))


def refuse_out_of_range(images: Tensor, path: Path) -> None:
    """Refuse floats that are NaN or outside [0, 1], checking some of the images at a time.

    Args:
        images: Images (N, C, H, W); uint8 ones are always accepted.
        path: The file they are from, for messages.
    """
    if not images.is_floating_point():
        return
    for part in images.split(max(1, _CHUNK // images[0].numel())):  # type: ignore[no-untyped-call]
        if not bool(((part >= 0) & (part <= 1)).all()):
            raise BadData(
                f"The images of {path} are floats outside [0, 1]. Divide grey levels by 255, and do not normalise "
                "the images: Classifier does it."
            )


def same_shape(x: NDArray[Any], shape: tuple[int, ...], path: Path) -> None:
    """Refuse an array that is not uint8 or has a different shape.

    Args:
        x: The array.
        shape: The shape it must have.
        path: The file it is from, for messages.
    """
    if x.dtype != np.uint8 or x.shape != shape:
        raise BadData(f"{path} must be uint8 {shape}; got {x.dtype} {x.shape}.")
