"""The states that a guarded adapter may return to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ctta._adapter.learning import same_bits
from ctta.adapter import Adapter
from ctta.guard import Restore

State = dict[str, Any]


class GoodStates:
    """The last state that was followed by no alarm for a while, and a newer one that is not yet confirmed.

    A state is kept without the parameters that never change and without the optimizer's moments, which are as large as
    the network and point towards the state that raised the alarm. Tensors that still have their initial values are not
    copied, because the adapter has those and the streams of a service share them. What is kept is never written to.

    Args:
        adapter: The adapter; its current state counts as good.
        every: Number of learnt batches after which the current state is kept.
    """

    def __init__(self, adapter: Adapter, every: int) -> None:
        self._adapter = adapter
        self._every = every
        self.begin()

    def begin(self) -> None:
        """Take the current state as good."""
        self._good = self._candidate = self._kept()
        self._since = 0

    def learnt(self) -> None:
        """Count a batch without an alarm; after enough of them the newer state is good, and the current one is kept."""
        self._since += 1
        if self._since >= self._every:
            self._good, self._candidate, self._since = self._candidate, self._kept(), 0

    def restore(self, what: Restore) -> None:
        """Return the adapter to a state; the images in its window stay.

        Args:
            what: "good", or "source" for the initial state.
        """
        adapter = self._adapter
        window = None if adapter._window is None else adapter._window.state()
        if what == "source" or self._good is None:
            adapter.reset()
            self._good = None
        else:
            frozen = {name: value for name, value in adapter.state_dict().items() if name in adapter._frozen}
            adapter.load_state_dict(frozen | self._good)
        if adapter._window is not None and window is not None:
            # The current images represent the stream better than those from that time.
            adapter._window.load(window)
        self._candidate = self._good
        self._since = 0

    @property
    def at_source(self) -> bool:
        """Whether the initial state is the only one to return to."""
        return self._good is None and self._candidate is None

    def nbytes(self) -> int:
        """Return the bytes of what is kept, besides the initial values."""
        kept = {id(t): t.nbytes for state in (self._good, self._candidate) for t in _tensors(state)}
        return sum(size for key, size in kept.items() if key not in {id(t) for t in self._adapter._initial.values()})

    def state(self) -> State:
        """Return everything, for a checkpoint."""
        same = self._candidate is self._good
        return {"good": self._good, "candidate": None if same else self._candidate, "same": same, "since": self._since}

    def load(self, state: Mapping[str, Any]) -> None:
        """Load what `state` returned.

        Args:
            state: The good states of an adapter of the same method and source.

        Raises:
            KeyError, TypeError, ValueError: If it is damaged. Nothing changes.
        """
        good = None if state["good"] is None else dict(state["good"])
        candidate = None if state["candidate"] is None else dict(state["candidate"])
        self._since = int(state["since"])
        self._good, self._candidate = good, good if state["same"] else candidate

    def _kept(self) -> State | None:
        adapter = self._adapter
        if _is_new(adapter):
            return None
        initial = adapter._initial
        state: State = {
            name: initial[name] if name in initial and _equal(value, initial[name]) else value
            for name, value in adapter.state_dict().items()
            if name not in adapter._frozen
        }
        extra = state["_extra_state"]
        if extra["optimizer"] is not None:
            extra = extra | {"optimizer": extra["optimizer"] | {"state": {}}}
        return state | {"_extra_state": extra}


def _is_new(adapter: Adapter) -> bool:
    """Return whether an adapter is in the state that `reset` returns to."""
    now = {name: value for name, value in adapter._state().items() if name not in adapter._frozen}
    initial = adapter._initial
    return (
        adapter.steps == adapter.skipped == adapter.restores == 0
        and now.keys() == initial.keys()
        and all(_equal(value, initial[name]) for name, value in now.items())
    )


def _equal(value: Any, initial: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == initial.shape and same_bits(value, initial)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in _tensors(item)]
