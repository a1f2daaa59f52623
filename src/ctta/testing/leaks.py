"""Point 11: memory over 200 steps."""

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


# The growth over fifty steps that is a leak: about one of them, and of bytes one number, per step.
_LEAK = _Use(tensors=40, tensor_bytes=160, graph_nodes=40, python_objects=40, entries=40)


def memory_is_flat(subject: Subject) -> None:
    """11: tensors, their bytes, autograd graphs, Python objects and what they hold stop growing within 200 steps."""
    adapter = subject.build()
    batches = subject.batches(16, _IMAGES)
    use = []
    for i in range(1, _MARKS[-1] + 1):
        adapter.step(batches[i % len(batches)])
        if i in _MARKS:
            use.append(_in_use())
    for what in fields(_Use):
        values = [getattr(u, what.name) for u in use]
        # What grows by chance grows once; a leak grows in both halves.
        growth = min(after - before for before, after in itertools.pairwise(values))
        if growth >= getattr(_LEAK, what.name):
            found = f"{what.name} at {values} after {list(_MARKS)} steps"
            raise ContractBroken("11 memory_is_flat", "memory that stops growing", found)


def _in_use() -> _Use:
    gc.collect()
    alive = gc.get_objects()
    # By type, because isinstance asks lazy proxies of other libraries for their class.
    tensors: list[Tensor] = [o for o in alive if issubclass(type(o), Tensor)]
    # Numbers and strings are seen by the containers that hold them.
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
    """Autograd nodes that live tensors hold on to; their saved tensors are out of Python's sight."""
    seen: set[Any] = set()
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return len(seen)
