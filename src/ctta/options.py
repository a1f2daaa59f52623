"""Options that adapters share, in three kinds, and range checks for arguments.

A method declares its kind by its constructor, ``**options: Unpack[...]``: `AnswerOptions` if it only predicts,
`StateOptions` if it keeps a state but takes no gradients, `SharedOptions` if it learns by gradients. `Adapter`
documents each option.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from torch import nn
from typing_extensions import TypedDict

from ctta._checks.arguments import Between, Readable
from ctta.classifier import Precision
from ctta.errors import ParameterError
from ctta.statistics import WORDS, Statistics, is_statistics

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Optimizer = Literal["adam", "sgd"] | OptimizerFactory

#: Seeds that torch and numpy both accept.
Seed = Annotated[int, Between(0, 2**32 - 1)]

#: The statistics that batch norms use, or their short form.
ChosenStatistics = Annotated[Statistics | str, Readable(is_statistics, WORDS)]


class AnswerOptions(TypedDict, total=False):
    """Options of every adapter. One that only predicts, such as BN, needs no others."""

    window: Annotated[int, Between(2, 2**31 - 1)] | None
    precision: Precision
    invalid: Literal["raise", "answer"]
    statistics: ChosenStatistics


class StateOptions(AnswerOptions, total=False):
    """Options of an adapter that keeps a state without gradients, such as running class means."""

    seed: Seed
    reset_every: Annotated[int, Between(1, math.inf)] | None


class SharedOptions(StateOptions, total=False):
    """Options of an adapter that learns by gradients."""

    optimizer: Optimizer
    lr: Annotated[float, Between(0, 1e3)]
    momentum: Annotated[float, Between(0, 1)]
    nesterov: bool


def with_defaults(defaults: SharedOptions, given: AnswerOptions) -> SharedOptions:
    """Complete the options that the user gave with a method's own defaults.

    Args:
        defaults: The method's defaults, as far as they differ from those of `Adapter`.
        given: The user's options.
    """
    return {**defaults, **given}


def check_bounds(owner: Any, **ranges: tuple[float, float]) -> None:
    """Check that attributes lie in their ranges.

    Args:
        owner: The object whose constructor stored its arguments under their own names.
        ranges: The smallest and the largest value of each attribute. None always passes.

    Raises:
        ParameterError: If a value is not a number or is outside its range.
    """
    for name, (low, high) in ranges.items():
        value = getattr(owner, name)
        if value is not None and not (isinstance(value, (int, float)) and low <= value <= high):
            raise ParameterError(
                f"The {name!r} parameter of {type(owner).__name__} must be a number in [{low}, {high}]. "
                f"Got {value!r} instead."
            )
