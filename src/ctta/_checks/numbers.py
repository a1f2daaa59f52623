"""Check the numeric arguments of streams."""

from __future__ import annotations

import math

from ctta._checks.arguments import shown
from ctta.errors import ParameterError

#: Seeds that torch and numpy both accept.
LARGEST_SEED = 2**32 - 1
#: The longest side in pixels that images are resized to; such an image takes 200 MB.
LARGEST_SIDE = 8192


def check_seed(seed: object) -> None:
    """Refuse a seed that is not a whole number in 0..2**32 - 1.

    Args:
        seed: The value to check; a bool is refused too.
    """
    if not _whole(seed, 0, LARGEST_SEED):
        raise ParameterError(
            f"The 'seed' of a stream must be a whole number in 0..{LARGEST_SEED}. Got {shown(seed)} instead."
        )


def check_side(side: object) -> None:
    """Refuse a side of images that is not a whole number of pixels, or more than memory can hold in a batch.

    Args:
        side: The side in pixels; None leaves images as they are.
    """
    if side is not None and not _whole(side, 1, LARGEST_SIDE):
        raise ParameterError(
            f"The 'side' of images must be a whole number of pixels in 1..{LARGEST_SIDE}. Got {shown(side)} instead."
        )


def check_whole(value: object, what: str, low: int = 1) -> None:
    """Refuse a value that is not a whole number of at least ``low``.

    Args:
        value: The value to check; a bool is refused too.
        what: What the value is; the first words of the error message.
        low: The smallest number allowed.
    """
    if not _whole(value, low, math.inf):
        raise ParameterError(f"{what} must be a whole number of at least {low}. Got {shown(value)} instead.")


def _whole(value: object, low: float, high: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
