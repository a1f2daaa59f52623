"""Contract point 11: memory does not grow."""

from __future__ import annotations

import gc
import itertools
from collections import deque
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from ctta.errors import ContractBroken
from ctta.testing.subject import Subject

_MARKS = (100, 150, 200)
_IMAGES = 4
_CONTAINERS = (list, dict, set, deque)


@dataclass(frozen=True)
class _Use:
    tensors: int
    tensor_bytes: int
    graph_nodes: int
    python_objects: int
    entries: int


# Growth over fifty steps that counts as a leak: roughly one object, or one 4-byte number, per step.
_LEAK = _Use(tensors=40, tensor_bytes=160, graph_nodes=40, python_objects=40, entries=40)


def memory_is_flat(subject: Subject) -> None:
    """11: the tensors, autograd graphs and Python objects in memory stop growing within 200 steps.

    Args:
        subject: The adapter under test, with its model and images.
    """
    adapter = subject.build()
    batches = subject.batches(16, _IMAGES)
    use = []
    for i in range(1, _MARKS[-1] + 1):
        adapter.step(batches[i % len(batches)])
        if i in _MARKS:
            use.append(_in_use())
    for what in fields(_Use):
        values = [getattr(u, what.name) for u in use]
        # Chance growth shows up in one interval; a leak shows up in both.
        growth = min(after - before for before, after in itertools.pairwise(values))
        if growth >= getattr(_LEAK, what.name):
            found = f"{what.name} at {values} after {list(_MARKS)} steps"
            raise ContractBroken("11 memory_is_flat", "memory that stops growing", found)


def _in_use() -> _Use:
    gc.collect()
    alive = gc.get_objects()
    # issubclass of the type: isinstance would trigger lazy proxies of other libraries.
    tensors: list[Tensor] = [o for o in alive if issubclass(type(o), Tensor)]
    # The garbage collector does not track numbers and strings; count the entries of their containers instead.
    entries = sum(len(o) for o in alive if type(o) in _CONTAINERS and o is not alive)
    return _Use(len(tensors), _bytes(tensors), _graph_nodes(tensors), len(alive), entries)


def _bytes(tensors: list[Tensor]) -> int:
    storages = {}
    for tensor in tensors:
        if tensor.device.type != "meta":
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _graph_nodes(tensors: list[Tensor]) -> int:
    """Count the autograd nodes that live tensors keep alive; the tensors saved in them are invisible to Python."""
    seen: set[Any] = set()
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return len(seen)
