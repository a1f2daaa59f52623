"""Check the mean and standard deviation by which images are normalised."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ctta.errors import ParameterError


def check_normalisation(mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
    """Check that mean and standard deviation fit each other and images in [0, 1].

    Args:
        mean: Mean of each channel.
        std: Standard deviation of each channel.

    Raises:
        ParameterError: If they do not.
    """
    if (mean is None) != (std is None):
        raise ParameterError("Classifier needs both mean and std, or neither.")
    if mean is None or std is None:
        return
    means, stds = _numbers(mean, "mean"), _numbers(std, "std")
    if len(means) != len(stds) or not means:
        raise ParameterError(
            f"Classifier needs one mean and one std for each channel. Got {len(means)} and {len(stds)} of them."
        )
    if min(stds) <= 0:
        raise ParameterError(f"Classifier needs a std above 0 in every channel. Got {stds} instead.")
    if max(means) > 1:
        raise ParameterError(f"Classifier needs the mean of images in [0, 1]. Got {means}; divide mean and std by 255.")


def _numbers(values: object, name: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        numbers = (math.nan,)
    if not all(math.isfinite(number) for number in numbers):
        raise ParameterError(
            f"Classifier needs the {name} as a list of finite numbers, one for each channel, such as {name}=[0.5, 0.5, "
            f"0.5]. Got {values!r} instead."
        )
    return numbers
