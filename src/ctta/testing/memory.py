"""Contract point 11: memory does not grow."""

from __future__ import annotations

import gc
import itertools
from collections import deque
from collections.abc import Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from ctta.errors import ContractBroken
from ctta.testing.subject import Subject

# Most methods are flat early; one whose memory is still filling up is judged by the later marks.
_EARLY = (24, 36, 48)
_LATE = (120, 160, 200)
_IMAGES = 4
_CONTAINERS = (list, dict, set, deque)


@dataclass(frozen=True)
class _Use:
    tensors: int
    tensor_bytes: int
    graph_nodes: int
    python_objects: int
    entries: int


# Growth per step that counts as a leak: roughly one object, or one 4-byte number.
_LEAK = _Use(tensors=1, tensor_bytes=4, graph_nodes=1, python_objects=1, entries=1)
_ENOUGH = 0.8


def memory_is_flat(subject: Subject) -> None:
    """11: the tensors, autograd graphs and Python objects in memory stop growing within 200 steps.

    Args:
        subject: The adapter under test, with its model and images.
    """
    batches = subject.batches(16, _IMAGES)
    with _only_new_objects() as existing:
        adapter = subject.build()
        done, found = 0, None
        for marks in (_EARLY, _LATE):
            use = []
            for mark in marks:
                while done < mark:
                    done += 1
                    adapter.step(batches[done % len(batches)])
                use.append(_in_use(existing))
            found = _leak(marks, use)
            if found is None:
                return
    raise ContractBroken("11 memory_is_flat", "memory that stops growing", str(found))


def _leak(marks: tuple[int, ...], use: list[_Use]) -> str | None:
    """Describe what grew in every interval between the marks; chance growth shows up in one, a leak in all."""
    steps = marks[1] - marks[0]
    for what in fields(_Use):
        values = [getattr(u, what.name) for u in use]
        growth = min(after - before for before, after in itertools.pairwise(values))
        if growth >= _ENOUGH * steps * getattr(_LEAK, what.name):
            return f"{what.name} at {values} after {list(marks)} steps"
    return None


@dataclass(frozen=True)
class _Existing:
    """Objects that existed before the adapter and may grow with it: containers, and tensors that hold graphs."""

    containers: list[Sized]
    tensors: list[Tensor]


@contextmanager
def _only_new_objects() -> Iterator[_Existing]:
    """Exclude the existing objects of the process from garbage collection, which would take most of the time."""
    frozen_before = gc.get_freeze_count() > 0
    gc.collect()
    gc.unfreeze()  # what is frozen is not among the objects that gc lists
    alive = gc.get_objects()
    # type() instead of isinstance, which would trigger lazy proxies of other libraries.
    existing = _Existing(
        [o for o in alive if type(o) in _CONTAINERS and o is not alive],
        _tensors(alive),
    )
    del alive
    gc.freeze()
    try:
        yield existing
    finally:
        if not frozen_before:
            gc.unfreeze()


def _in_use(existing: _Existing) -> _Use:
    gc.collect()
    alive = gc.get_objects()
    # The garbage collector does not track numbers and strings; count the entries of their containers instead.
    entries = sum(map(len, _containers(alive))) + sum(map(len, existing.containers))
    tensors = existing.tensors + _tensors(alive)
    return _Use(len(tensors), _bytes(tensors), _graph_nodes(tensors), len(alive), entries)


def _containers(alive: list[Any]) -> list[Sized]:
    return [o for o in alive if type(o) in _CONTAINERS and o is not alive]


def _tensors(alive: list[Any]) -> list[Tensor]:
    # By type: isinstance would trigger lazy proxies of other libraries.
    kinds = {kind for kind in set(map(type, alive)) if issubclass(kind, Tensor)}
    return [o for o in alive if type(o) in kinds]


def _bytes(tensors: list[Tensor]) -> int:
    storages = {}
    for tensor in tensors:
        # Tensors without memory: on the device "meta", and the fake ones that an export leaves behind.
        with suppress(RuntimeError):
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
