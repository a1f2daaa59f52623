"""Constructor arguments that adapters share, and the checks every argument goes through."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

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
    hints = get_type_hints(type(owner).__init__)
    for name, (low, high) in ranges.items():
        value = getattr(owner, name)
        _check_whole(owner, name, hints.get(name))
        if value is not None and not (isinstance(value, (int, float)) and low <= value <= high):
            raise ParameterError(
                f"The {name!r} parameter of {type(owner).__name__} must be a number in [{low}, {high}]. "
                f"Got {value!r} instead."
            )


def check_literals(owner: Any, signature: Callable[..., Any]) -> None:
    """Check every argument annotated as Literal, bool or int, kept as an attribute of the same name."""
    for name, hint in get_type_hints(signature).items():
        members = _members(hint)
        _check_whole(owner, name, hint)
        literals = tuple(value for m in members if get_origin(m) is Literal for value in get_args(m))
        value = getattr(owner, name, None)
        wrong_literal = literals and value not in literals and (isinstance(value, str) or len(members) == 1)
        if wrong_literal or (hint is bool and not isinstance(value, bool)):
            raise ParameterError(
                f"The {name!r} parameter of {type(owner).__name__} must be one of {literals or (True, False)}. "
                f"Got {value!r} instead."
            )


def _check_whole(owner: Any, name: str, hint: Any) -> None:
    value = getattr(owner, name, None)
    if int in _members(hint) and value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ParameterError(
            f"The {name!r} parameter of {type(owner).__name__} must be a whole number. Got {value!r} instead."
        )


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
