"""Adapters of one source share what never changes: frozen parameters and the initial state."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.errors import SourceMismatch
from ctta.guarded.reference import Reference


def share(adapter: Adapter, template: Adapter) -> Adapter:
    """Let an adapter use the tensors of another one for what never changes.

    Args:
        adapter: An adapter that was just built.
        template: An adapter of the same method, settings and source.
    """
    for name in adapter._frozen:
        owner, _, attribute = name.rpartition(".")
        # The same memory with its own version counter: loading a state writes the same values to it, and autograd
        # would refuse the step that another stream is taking.
        shared = nn.Parameter(template.get_parameter(name).data, requires_grad=False)
        adapter.get_submodule(owner)._parameters[attribute] = shared
    if adapter._initial.keys() == template._initial.keys():
        adapter._initial = template._initial
    return adapter


def refuse_other_source(state: Mapping[str, Any], adapter: Adapter, prefix: str = "") -> None:
    """Refuse a state whose frozen parameters differ from those that the streams share.

    Args:
        state: The state to load.
        adapter: The adapter to load it into.
        prefix: The prefix of the adapter's names in the state.

    Raises:
        SourceMismatch: If a parameter differs.
    """
    for name in adapter._frozen:
        given, own = state.get(f"{prefix}{name}"), adapter.get_parameter(name)
        if isinstance(given, Tensor) and not torch.equal(given.to(own.device), own):
            raise SourceMismatch(
                f"{name} never changes in {type(adapter).__name__}; the state has other values for it."
            )


class SharedReference(Reference):
    """A reference that several threads may use, one at a time.

    Args:
        adapter: An adapter in its initial state. It never learns.
    """

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self._turn = threading.Lock()

    def predict(
        self, held: Tensor, newest: int, recent_classes: Tensor | None = None, draws: Tensor | None = None
    ) -> Tensor:
        """Predict for the newest of the images that an adapter holds."""
        with self._turn:
            return super().predict(held, newest, recent_classes, draws)
