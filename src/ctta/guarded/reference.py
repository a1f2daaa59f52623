"""The reference: the unadapted network, with which a guarded adapter is compared and which answers in a fallback."""

from __future__ import annotations

import copy

from torch import Tensor

from ctta.adapter import Adapter


class Reference:
    """The unadapted network under the adapter's own choice of statistics.

    Args:
        adapter: An adapter in its initial state. It never learns.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        # The images of the guarded adapter's window are given with every call.
        adapter._window = None

    @classmethod
    def of(cls, adapter: Adapter) -> Reference:
        """Make the reference of an adapter, whatever it has learnt by now.

        Args:
            adapter: The adapter; the reference shares its frozen parameters and its initial state.
        """
        shared = {id(p): p for name, p in adapter.named_parameters() if name in adapter._frozen}
        initial = {id(value): value for value in adapter._initial.values()}
        new = copy.deepcopy(adapter, {**shared, **initial})
        new.reset()
        return cls(new)

    def predict(self, held: Tensor, newest: int) -> Tensor:
        """Predict for the last images of those that an adapter holds.

        Args:
            held: The images of the window, or the batch.
            newest: How many of them to predict for.
        """
        return self.adapter.predict(held, allow_small=True)[-newest:]
