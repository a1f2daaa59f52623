"""The short form of statistics, as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ctta.errors import ParameterError
from ctta.statistics.base import Statistics
from ctta.statistics.kinds import Auto, Batch, Misfit, Moving, Prior, Share, Source, _Short

_SHORT: tuple[type[_Short], ...] = (Batch, Source, Prior, Share, Misfit, Moving, Auto)
_KINDS: Mapping[str, Callable[..., _Short]] = {kind.name: kind for kind in _SHORT}
#: The accepted forms of an argument, for messages.
WORDS = (
    "'batch', 'source', 'prior:16' (images, 0 or more), 'share:0.4' (0 to 1), 'misfit', 'moving:0.05' (0 to 1), "
    "'auto' or a ctta.statistics.Statistics"
)


def as_statistics(given: object) -> Statistics:
    """Read the short form of statistics.

    Args:
        given: The short form; statistics are returned as they are.

    Raises:
        ParameterError: If it is neither, or its number is out of range.

    Example:
        >>> as_statistics("prior:16")
        Prior(images=16.0)
        >>> str(as_statistics("misfit"))
        'misfit:0.08'
    """
    if isinstance(given, Statistics):
        return given
    name, colon, number = given.partition(":") if isinstance(given, str) else ("", "", "")
    try:
        value = float(number) if colon else None
        if value is not None and not math.isfinite(value):
            raise ValueError(number)
        return _KINDS[name]() if value is None else _KINDS[name](value)
    except ParameterError:  # a number out of range
        raise
    except (KeyError, ValueError, TypeError):  # an unknown name, not a number, or too many or too few
        raise ParameterError(f"Statistics must be {WORDS}. Got {given!r} instead.") from None


def short_form(statistics: Statistics) -> Statistics | str:
    """Return the short form, or the statistics themselves if they have none.

    Args:
        statistics: The statistics.
    """
    return str(statistics) if type(statistics) in _SHORT else statistics


def stored_form(given: object) -> Statistics | str:
    """Return a choice of statistics as adapters and records store it: "auto" and "auto:0.45" are one choice.

    Args:
        given: Anything that `as_statistics` takes.
    """
    return short_form(as_statistics(given))


def is_statistics(given: Any) -> bool:
    """Return whether an argument is a valid choice of statistics.

    Args:
        given: The argument.
    """
    try:
        as_statistics(given)
    except ParameterError:
        return False
    return True
