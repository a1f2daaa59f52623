"""What the layers of a network tell each other during a forward pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import get_ident
from typing import Final

import torch
from torch import Tensor, nn

#: A method may run the network several times before it learns from all these passes.
_REMEMBERED: Final = 16


class Pass:
    """What the layers of a network have measured in the current forward pass.

    Several threads may run the network at once; each has its own pass. A copy, or a pickled one, has measured nothing.

    Args:
        layers: The number of these layers in the network.
        concentration: How concentrated recent predictions are on few classes; 1 is not at all.
    """

    def __init__(self, layers: int, concentration: float = 1.0) -> None:
        self.layers = layers
        self.concentration = concentration
        self._running: dict[int, dict[int, Tensor]] = {}
        self._recent: deque[dict[int, Tensor]] = deque(maxlen=_REMEMBERED)

    def __reduce__(self) -> tuple[type[Pass], tuple[int, float]]:
        """Copy and pickle only what outlasts a pass."""
        return Pass, (self.layers, self.concentration)

    def add(self, position: int, value: Tensor) -> tuple[Tensor, ...]:
        """Add what a layer measured, and return all that was measured in this pass, in the order of the layers' runs.

        Args:
            position: The layer's position in the network. A layer that runs again begins the next pass.
            value: What it measured.
        """
        if not is_traced() and torch._C._current_graph_task_id() != -1:  # in a backward pass
            return self._recomputed(position, value)
        thread = get_ident()
        measured = self._running.get(thread)
        if measured is None or position in measured:
            measured = self._running[thread] = {}
            if not is_traced():  # a tracer's tensors are of no use later
                self._recent.append(measured)
        measured[position] = value
        if len(measured) == self.layers:
            del self._running[thread]
        return tuple(measured.values())

    def begin_step(self, concentration: float) -> None:
        """Forget the passes of the last step.

        Args:
            concentration: How concentrated recent predictions are on few classes.
        """
        self.concentration = concentration
        self._recent.clear()

    def _recomputed(self, position: int, value: Tensor) -> tuple[Tensor, ...]:
        """Return what was measured up to a layer that activation checkpointing runs again: it must blend as before."""
        passes = [measured for measured in self._recent if position in measured]
        if not passes:
            return (value,)
        measured = min(passes, key=lambda past: (past[position] - value).abs().max().item())
        until = list(measured).index(position)
        return tuple(measured.values())[: until + 1]


def is_traced() -> bool:
    """Whether the network is being traced or exported."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return tracing or torch.compiler.is_exporting()


def share_pass(layers: Iterable[nn.Module], concentration: float = 1.0) -> None:
    """Let the layers of one network know what the others measure.

    Args:
        layers: All batch norms of the network.
        concentration: How concentrated recent predictions are on few classes; 1 is not at all.
    """
    every = list(layers)
    current = Pass(len(every), concentration)
    for position, layer in enumerate(every):
        vars(layer)["current_pass"] = current
        vars(layer)["position"] = position


def told_concentration(network: nn.Module) -> float:
    """Return what `tell_concentration` last told the layers of a network, or 1.

    Args:
        network: The network.
    """
    passes = (vars(layer).get("current_pass") for layer in network.modules())
    return next((current.concentration for current in passes if isinstance(current, Pass)), 1.0)


def tell_concentration(network: nn.Module, concentration: float) -> None:
    """Tell all layers, before a step, how concentrated recent predictions are on few classes.

    Args:
        network: The network, or a module that contains several.
        concentration: How much more often two predictions are the same class than if all were equally frequent.
    """
    for layer in network.modules():
        current = vars(layer).get("current_pass")
        if isinstance(current, Pass):
            current.begin_step(concentration)
