"""Constructor arguments that adapters share, and the checks every argument goes through."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from torch import nn
from typing_extensions import TypedDict

from ctta.arguments import Between
from ctta.classifier import Precision
from ctta.errors import ParameterError

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Optimizer = Literal["adam", "sgd"] | OptimizerFactory

#: Seeds that torch and numpy both take.
Seed = Annotated[int, Between(0, 2**32 - 1)]


class AnswerOptions(TypedDict, total=False):
    """Options of every adapter."""

    window: Annotated[int, Between(2, 2**31 - 1)] | None
    precision: Precision
    invalid: Literal["raise", "answer"]


class SharedOptions(AnswerOptions, total=False):
    """Options of every adapter that learns."""

    optimizer: Optimizer
    lr: Annotated[float, Between(0, 1e3)]
    momentum: Annotated[float, Between(0, 1)]
    nesterov: bool
    seed: Seed
    reset_every: Annotated[int, Between(1, math.inf)] | None


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
