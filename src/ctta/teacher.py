"""Mean teachers: a frozen copy of the student, updated as a moving average."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def frozen_copy(module: Module) -> Module:
    """Return a copy without gradients.

    Args:
        module: The network.
    """
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def ema_(teacher: nn.Module, student: nn.Module, alpha: float) -> None:
    """Set teacher <- alpha teacher + (1 - alpha) student for all parameters, in place.

    Args:
        teacher: The network to update.
        student: A network of the same architecture.
        alpha: The momentum. At 1 the teacher does not change.

    Example:
        >>> teacher, student = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> _ = nn.init.ones_(teacher.weight), nn.init.zeros_(student.weight)
        >>> ema_(teacher, student, 0.75)
        >>> teacher.weight.item()
        0.75
    """
    average: list[Tensor] = list(teacher.parameters())
    if average and alpha < 1:
        torch._foreach_lerp_(average, list[Tensor](student.parameters()), 1 - alpha)


@torch.no_grad()
def assign_(module: nn.Module, values: Iterable[Tensor]) -> None:
    """Copy values into the parameters of a module, in order.

    Args:
        module: The module.
        values: One tensor per parameter.
    """
    torch._foreach_copy_(list(module.parameters()), list(values))


@torch.no_grad()
def assign_at_(parameter: Tensor, values: Tensor, positions: Tensor) -> None:
    """Copy some entries of a tensor into a parameter of the same shape.

    Args:
        parameter: The parameter, changed in place.
        values: The tensor to copy from.
        positions: The entries to copy, as positions in row-major order.
    """
    # By index, because a parameter in channels_last has no flat view; the 1 gives scalars an index too.
    at = torch.unravel_index(positions.to(parameter.device), (1, *parameter.shape))
    parameter.unsqueeze(0)[at] = values.unsqueeze(0)[at]
