"""Checks of requests before they reach a stream, so that one client's mistake does not affect others."""

from __future__ import annotations

import math

from ctta._checks.images import check_images
from ctta.errors import ImageShape, NonFiniteImages, ParameterError
from ctta.serve.types import Ask, Limits

#: Maximum length of a stream's name or a request's id, of which thousands are remembered.
LONGEST_NAME = 1000


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
    check_name(ask.stream, "The name of a stream")
    check_name(ask.id or "", "The id of a request")


def check_name(name: str, what: str) -> None:
    """Refuse a name that is too long to be remembered.

    Args:
        name: The name.
        what: What it names, for the error message.
    """
    if len(name) > LONGEST_NAME:
        raise ParameterError(f"{what} may have {LONGEST_NAME} characters; got {len(name)}.")


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
