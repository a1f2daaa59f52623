"""Constructor arguments that adapters share, and the checks every argument goes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from typing_extensions import TypedDict

from ctta.classifier import Precision
from ctta.errors import ParameterError

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Optimizer = Literal["adam", "sgd"] | OptimizerFactory


class AnswerOptions(TypedDict, total=False):
    """Options of every adapter."""

    window: int | None
    precision: Precision
    invalid: Literal["raise", "answer"]


class SharedOptions(AnswerOptions, total=False):
    """Options of every adapter that learns."""

    optimizer: Optimizer
    lr: float
    momentum: float
    nesterov: bool
    seed: int
    reset_every: int | None


def with_defaults(defaults: SharedOptions, given: SharedOptions) -> SharedOptions:
    """A method's own defaults of shared options, under what the user gave."""
    return {**defaults, **given}


def check_bounds(owner: Any, **ranges: tuple[float, float]) -> None:
    """Check that arguments, kept as attributes of the same name, lie in their closed ranges; None passes."""
    for name, (low, high) in ranges.items():
        value = getattr(owner, name)
        if value is not None and not (isinstance(value, (int, float)) and low <= value <= high):
            raise ParameterError(
                f"The {name!r} parameter of {type(owner).__name__} must be a number in [{low}, {high}]. "
                f"Got {value!r} instead."
            )


def check_choices(owner: Any, **options: tuple[object, ...]) -> None:
    """Check that arguments, kept as attributes of the same name, are among their choices."""
    for name, allowed in options.items():
        value = getattr(owner, name)
        if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in allowed):
            raise ParameterError(
                f"The {name!r} parameter of {type(owner).__name__} must be one of {allowed}. Got {value!r} instead."
            )
