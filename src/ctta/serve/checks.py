"""Checks of requests before they reach a stream, so that one client's mistake does not affect others."""

from __future__ import annotations

import math

from ctta._checks.images import check_images
from ctta.classifier import Classifier
from ctta.errors import HeadNotFound, ImageShape, NonFiniteImages, ParameterError
from ctta.serve.types import LONGEST_ID, LONGEST_STREAM, Ask, Limits


def check_ask(ask: Ask, limits: Limits) -> None:
    """Refuse a request that would spoil its batch or take more memory than allowed.

    Args:
        ask: The request.
        limits: What the service accepts.

    Raises:
        InputError: If there are too many images, or they are too large or not valid input for an adapter.
        ParameterError: If the name of the stream or the id is too long.
    """
    images = ask.images
    if images.dim() == 4 and (len(images) > limits.images or images.numel() > limits.pixels):
        raise ImageShape(
            f"A request may have {limits.images} images and {limits.pixels} numbers; got "
            f"{len(images)} and {images.numel()}. Send fewer images at once."
        )
    broken = check_images(images)
    if broken is not None:
        raise NonFiniteImages(f"Images must be finite; {int(broken.sum())} of {len(images)} contain NaN or Inf.")
    check_stream(ask.stream)
    _check_length(ask.id or "", LONGEST_ID, "The id of a request")


def check_stream(name: str) -> None:
    """Refuse a stream's name that is too long.

    Args:
        name: The name.

    Raises:
        ParameterError: If it is.
    """
    _check_length(name, LONGEST_STREAM, "The name of a stream")


def _check_length(text: str, longest: int, what: str) -> None:
    if len(text) > longest:
        raise ParameterError(f"{what} may have {longest} characters; got {len(text)}.")


def count_classes(classifier: Classifier) -> int:
    """Return the number of classes, which clients are told, and by which labels and names of classes are checked.

    Args:
        classifier: The classifier.

    Raises:
        HeadNotFound: If it has no linear head. Only a forward pass would tell then, and the size of the images is not
            known before the first request.
    """
    if classifier.head_name is None:
        raise HeadNotFound(
            f"A service needs a linear head, to know the number of classes; {type(classifier.model).__name__} has "
            'none that was found. Name the layer: serve Classifier(model, head="...").'
        )
    return classifier.num_classes


def check_limits(limits: Limits) -> None:
    """Refuse limits under which nothing could be served.

    Args:
        limits: The limits.
    """
    for name in ("batch", "queue", "streams", "save_every", "keep", "images", "pixels", "remembered"):
        if getattr(limits, name) < 1:
            raise ParameterError(f"The limit {name!r} must be at least 1. Got {getattr(limits, name)} instead.")
    if not (math.isfinite(limits.wait) and limits.wait >= 0):
        raise ParameterError(f"The limit 'wait' must be a number of seconds, at least 0. Got {limits.wait} instead.")
    if not 0 < limits.learn_share <= 1:
        raise ParameterError(
            f"The limit 'learn_share' must be above 0 and at most 1. Got {limits.learn_share} instead."
        )
    if limits.audit is not None and not limits.audit > 0:
        raise ParameterError(f"The limit 'audit' must be above 0 megabytes, or None. Got {limits.audit} instead.")
    if limits.idle is not None and not limits.idle > 0:
        raise ParameterError(f"The limit 'idle' must be above 0 seconds, or None. Got {limits.idle} instead.")
