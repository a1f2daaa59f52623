"""Read the images of a request: the declaration, checked against the limits, and the values, as bytes or numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ctta._checks.arguments import shown
from ctta._checks.images import check_images
from ctta.errors import ImageDtype, ImageShape, NonFiniteImages, RequestError, RequestTooLarge
from ctta.serve.types import Limits

INPUT = "images"

Datatype = Literal["UINT8", "FP32"]
Layout = Literal["NCHW", "NHWC"]

_NUMPY: dict[str, np.dtype[Any]] = {"UINT8": np.dtype("u1"), "FP32": np.dtype("<f4")}


@dataclass(frozen=True)
class ImageTensor:
    """The declared type and shape of the images of a request, checked against the limits.

    Args:
        datatype: "UINT8" or "FP32".
        shape: The four sizes, none of them 0.
        layout: The order of the sizes.
    """

    datatype: Datatype
    shape: tuple[int, int, int, int]
    layout: Layout = "NCHW"

    @property
    def size(self) -> int:
        """How many numbers the tensor has."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """How many bytes the numbers take."""
        return self.size * _NUMPY[self.datatype].itemsize


def image_tensor(
    name: object, datatype: object, shape: object, parameters: Mapping[str, Any], limits: Limits
) -> ImageTensor:
    """Check the declaration of an input before any of its values is read.

    Args:
        name: The input's name.
        datatype: Its datatype.
        shape: Its shape.
        parameters: Its parameters; only ``layout`` is used.
        limits: The maximum numbers of images and values in a request.

    Raises:
        RequestError: If the declaration is not that of images.
        ImageDtype: If it has another datatype.
        ImageShape: If there are not four sizes above 0.
        RequestTooLarge: If there are more images or numbers than the limits allow.
    """
    if name != INPUT:
        raise RequestError(f"The input must be named {INPUT!r}; got {shown(name)}. See the model's metadata.")
    kind = next((known for known in get_args(Datatype) if known == datatype), None)
    if kind is None:
        raise ImageDtype(
            f"The datatype of {INPUT!r} must be UINT8 (0 to 255) or FP32 (0 to 1); got {shown(datatype)}. Convert the "
            "images."
        )
    if not isinstance(shape, (list, tuple)) or len(shape) != 4 or not all(_is_size(size) for size in shape):
        raise ImageShape(
            f"The shape of {INPUT!r} must be four whole numbers above 0, (N, C, H, W); got {shown(shape)}. One image "
            "alone has N = 1."
        )
    layout = next((known for known in get_args(Layout) if known == parameters.get("layout", "NCHW")), None)
    if layout is None:
        raise RequestError(
            f"The parameter 'layout' of {INPUT!r} must be NCHW or NHWC; got {shown(parameters['layout'])}. Leave it "
            "out for NCHW."
        )
    first, second, third, fourth = (int(size) for size in shape)
    declared = ImageTensor(kind, (first, second, third, fourth), layout)
    if first > limits.images or declared.size > limits.pixels:
        raise RequestTooLarge(
            f"A request may have {limits.images} images and {limits.pixels} numbers; {INPUT!r} has {first} images and "
            f"{declared.size} numbers. Send fewer or smaller images at once."
        )
    return declared


def images_from_bytes(declared: ImageTensor, data: bytes | memoryview) -> Tensor:
    """Read images from the protocol's bytes.

    Args:
        declared: Their type and shape.
        data: Little-endian numbers in row-major order.

    Returns:
        Float32 images (N, C, H, W) in [0, 1].

    Raises:
        RequestError: If there are more or fewer bytes than declared.
        NonFiniteImages, ImageRange: If the values are not finite or lie outside [0, 1].
    """
    if len(data) != declared.num_bytes:
        raise RequestError(
            f"{INPUT!r} of shape {list(declared.shape)} and datatype {declared.datatype} needs {declared.num_bytes} "
            f"bytes; got {len(data)}. Send the whole tensor in row-major order."
        )
    return _images(declared, np.frombuffer(data, _NUMPY[declared.datatype]))


def images_from_numbers(declared: ImageTensor, values: Sequence[Any]) -> Tensor:
    """Read images from numbers.

    Args:
        declared: Their type and shape.
        values: The numbers in row-major order, flat or nested.

    Returns:
        Float32 images (N, C, H, W) in [0, 1].

    Raises:
        RequestError: If there are more or fewer numbers than declared, or values that are not numbers.
        ImageDtype: If the values for UINT8 are not whole numbers from 0 to 255.
        NonFiniteImages, ImageRange: If the values are not finite or lie outside [0, 1].
    """
    try:
        array = np.array(values)
    except (ValueError, TypeError, OverflowError, RecursionError):
        array = np.empty(0, object)
    if array.dtype.kind not in "iuf":
        raise RequestError(
            f"The data of {INPUT!r} must be numbers, in one flat list or nested as the shape; got something else or "
            "rows of different lengths."
        )
    if array.size != declared.size or (array.ndim > 1 and array.shape != declared.shape):
        raise RequestError(
            f"{INPUT!r} of shape {list(declared.shape)} needs {declared.size} numbers, in one flat list or nested as "
            f"the shape; got {array.size} numbers nested as {list(array.shape)}."
        )
    if declared.datatype == "UINT8" and (array.dtype.kind == "f" or array.min() < 0 or array.max() > 255):
        raise ImageDtype(f"UINT8 data of {INPUT!r} must be whole numbers from 0 to 255. Send floats in [0, 1] as FP32.")
    return _images(declared, array)


def _images(declared: ImageTensor, array: np.ndarray[Any, Any]) -> Tensor:
    with np.errstate(over="ignore"):  # values too large for float32 become Inf, which is refused below
        images = torch.from_numpy(array.astype(np.float32).reshape(declared.shape))
    if declared.layout == "NHWC":
        images = images.permute(0, 3, 1, 2).contiguous()
    if declared.datatype == "UINT8":
        return images.div_(255)
    broken = check_images(images)
    if broken is not None:
        raise NonFiniteImages(
            f"Images must be finite; number {int(broken.nonzero()[0])} of {len(images)} contains NaN or Inf. Leave it "
            "out."
        )
    return images


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31
