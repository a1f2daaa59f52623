"""Convert images and labels to tensors: from torch or numpy, channels first or last, or lists of either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ctta.errors import ImageDtype, ImageShape, LabelError

_CHANNELS = (1, 3)
_RGBA = 4


def images_tensor(x: object) -> Tensor:
    """Convert images to a tensor (N, C, H, W) of uint8 or floats; what cannot be converted is refused.

    Args:
        x: A tensor, a numpy array, or a list or tuple of images of one size. Images (N, H, W, C) with 1 or 3 channels
            are permuted, unless the second dimension could be the channels as well.

    Raises:
        ImageDtype: If the values are neither uint8 nor floats.
        ImageShape: If there are no images, or they are not N images with channels, or of different sizes.
    """
    found = x if isinstance(x, Tensor) else _stacked(x)
    if found.dtype != torch.uint8 and not found.is_floating_point():
        raise ImageDtype(
            f"Images must be uint8 or floats in [0, 1]; got {found.dtype}. "
            "Convert grey levels of 0 to 255 to uint8, as x.to(torch.uint8) does."
        )
    if found.dim() == 4 and found.shape[1] not in _CHANNELS and found.shape[3] in _CHANNELS:
        found = found.permute(0, 3, 1, 2)
    if found.dim() == 4 and found.shape[3] == _RGBA and found.shape[1] > _RGBA and found.shape[2] > _RGBA:
        raise ImageShape(
            f"Images must have their channels first, or 1 or 3 channels last; got {tuple(found.shape)}, which looks "
            "like RGBA. Drop the alpha channel with x[..., :3], or move the channels with x.permute(0, 3, 1, 2)."
        )
    if found.dim() != 4 or 0 in found.shape:
        raise ImageShape(
            f"Images must be a non-empty (N, C, H, W) tensor; got {tuple(found.shape)}. "
            "Add a missing dimension: x.unsqueeze(0) for a single image, x.unsqueeze(1) for grey images (N, H, W)."
        )
    return found


def float_images(x: object) -> Tensor:
    """Convert images as `images_tensor` does, and uint8 ones to floats in [0, 1].

    Args:
        x: Whatever `images_tensor` accepts.
    """
    found = images_tensor(x)
    return found.float() / 255 if found.dtype == torch.uint8 else found


def labels_tensor(y: object, count: int) -> Tensor:
    """Convert class labels to an int64 tensor (N,); what cannot be converted is refused.

    Args:
        y: A tensor, numpy array or sequence of integers.
        count: The number of images they belong to.

    Raises:
        LabelError: If there is not exactly one integer of at least 0 for each image.
    """
    found = y if isinstance(y, Tensor) else _label_array(y)
    if found.shape != (count,):
        hint = ""
        if found.dim() == 2 and len(found) == count:
            hint = " Use y.squeeze(1)." if found.shape[1] == 1 else " Use y.argmax(1) on one-hot labels."
        raise LabelError(f"{count} images need {count} labels, (N,); got {tuple(found.shape)}.{hint}")
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise LabelError(f"Labels must be integers, the numbers of the classes; got {found.dtype}. Use y.long().")
    labels = found.long()  # torch cannot compare unsigned integers of more than 8 bits
    if count and (lowest := int(labels.min())) < 0:
        wrapped = lowest + 2**64 if found.dtype == torch.uint64 else lowest
        raise LabelError(f"Labels must be classes from 0 on; got {wrapped}.")
    return labels


def check_classes(y: Tensor, classes: int) -> None:
    """Refuse labels that are not classes of the model.

    Args:
        y: Integer labels (N,).
        classes: The number of classes of the model; labels must be below it.
    """
    if len(y) and not (int(y.min()) >= 0 and int(y.max()) < classes):
        hint = " Labels that count from 1 must be lowered by 1: y - 1." if int(y.max()) == classes else ""
        raise LabelError(
            f"Labels must be classes in 0..{classes - 1} for a model of {classes} classes; "
            f"got {int(y.min())}..{int(y.max())}.{hint}"
        )


def _stacked(x: object) -> Tensor:
    if isinstance(x, np.ndarray):
        return _from_numpy(x, "Images")
    if not isinstance(x, (list, tuple)):
        raise ImageDtype(f"Images must be a tensor, a numpy array or a list of them; got {type(x).__name__}.")
    if not x:
        raise ImageShape("Images must be a non-empty (N, C, H, W) tensor; got an empty list.")
    try:
        if all(isinstance(image, Tensor) for image in x):
            return torch.stack(list(x))
        # A tensor that requires a gradient cannot become a numpy array.
        arrays = [image.detach().cpu().numpy() if isinstance(image, Tensor) else image for image in x]
        return _from_numpy(np.asarray(arrays), "Images")
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, ImageDtype):
            raise
        raise ImageShape(f"The images of a list must all have one size: {_first_line(error)}.") from error


def _label_array(y: object) -> Tensor:
    if not isinstance(y, (np.ndarray, Sequence, int)) or isinstance(y, (str, bytes)):
        raise LabelError(f"Labels must be a tensor, a numpy array or a list of integers; got {type(y).__name__}.")
    try:
        return _from_numpy(np.asarray(y), "Labels")
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise LabelError(f"Labels must be integers, one for each image: {_first_line(error)}.") from error


def _from_numpy(array: NDArray[Any], what: str) -> Tensor:
    """Share the memory if torch can: native byte order, forward strides, writable."""
    if array.dtype.kind not in "biufc":
        raise ImageDtype(f"{what} must be numbers; got an array of {array.dtype}.")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not native.flags.writeable or any(stride < 0 for stride in native.strides):
        native = native.copy()
    try:
        return torch.from_numpy(native)
    except TypeError as error:
        raise ImageDtype(f"{what} have the type {array.dtype}, which torch does not have.") from error


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", maxsplit=1)[0].rstrip(".")
