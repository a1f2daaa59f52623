"""Mean teachers: a frozen copy, and the moving average that lets it follow."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def frozen_copy(module: Module) -> Module:
    """A copy that takes no gradient."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def ema_(teacher: nn.Module, student: nn.Module, alpha: float) -> None:
    """teacher <- alpha teacher + (1 - alpha) student, over all parameters, in place."""
    average: list[Tensor] = list(teacher.parameters())
    if average and alpha < 1:
        torch._foreach_lerp_(average, list[Tensor](student.parameters()), 1 - alpha)


@torch.no_grad()
def assign_(module: nn.Module, values: Iterable[Tensor]) -> None:
    """Copy values into the parameters of a module, in order."""
    torch._foreach_copy_(list(module.parameters()), list(values))


@torch.no_grad()
def assign_at_(parameter: Tensor, values: Tensor, positions: Tensor) -> None:
    """Copy some entries into a parameter: those at these positions when it is read row by row."""
    # By index, because a parameter in channels_last has no flat view; the 1 gives scalars an index too.
    at = torch.unravel_index(positions.to(parameter.device), (1, *parameter.shape))
    parameter.unsqueeze(0)[at] = values.unsqueeze(0)[at]
