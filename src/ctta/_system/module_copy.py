"""Copy modules quickly."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any, TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)

_TABLES = (dict, OrderedDict, set, list)


def deepcopy_module(module: Module) -> Module:
    """Return a deep copy of a module, in little more than half the time of ``copy.deepcopy`` if it is small.

    Args:
        module: The module.
    """
    memo: dict[int, Any] = {}
    note_empty_tables(module, memo)
    return copy.deepcopy(module, memo)


def note_empty_tables(module: nn.Module, memo: dict[int, Any]) -> None:
    """Enter new tables for the empty ones of a module into the memo of ``copy.deepcopy``.

    Every layer has about fifteen tables of hooks, most of them empty, and ``copy.deepcopy`` is slow for each.

    Args:
        module: The module that will be copied.
        memo: Copies by the id of the original.
    """
    for layer in module.modules():
        for value in vars(layer).values():
            if type(value) in _TABLES and not value:
                memo.setdefault(id(value), type(value)())
