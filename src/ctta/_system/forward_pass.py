"""What the layers of a network tell each other during a forward pass."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class Pass:
    """What the layers of a network have measured in the current forward pass.

    Args:
        layers: The number of these layers in the network.

    Attributes:
        concentration: How concentrated recent predictions are on few classes; 1 is not at all.
    """

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.concentration = 1.0
        self._measured: dict[int, Tensor] = {}

    def add(self, position: int, value: Tensor) -> tuple[Tensor, ...]:
        """Add what a layer measured, and return all that was measured in this pass, in the order of the layers' runs.

        Args:
            position: The layer's position in the network. A layer that runs again begins the next pass.
            value: What it measured.
        """
        if position in self._measured:
            self._measured.clear()
        self._measured[position] = value
        return tuple(self._measured.values())


def share_pass(layers: Iterable[nn.Module]) -> None:
    """Let the layers of one network know what the others measure.

    Args:
        layers: All batch norms of the network.
    """
    every = list(layers)
    current = Pass(len(every))
    for position, layer in enumerate(every):
        vars(layer)["current_pass"] = current
        vars(layer)["position"] = position


def tell_concentration(network: nn.Module, concentration: float) -> None:
    """Tell all layers how concentrated recent predictions are on few classes.

    Args:
        network: The network, or a module that contains several.
        concentration: How much more often two predictions are the same class than if all were equally frequent.
    """
    for layer in network.modules():
        current = vars(layer).get("current_pass")
        if isinstance(current, Pass):
            current.concentration = concentration
