"""Buffers that two modules share, that repeat an element, or that a forward pass creates, resizes or replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta import errors
from ctta.testing.compare import difference

X = torch.rand(4, 6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A convolution, two batch norms and a linear head; the subclasses add buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3)
        self.first = nn.BatchNorm2d(8)
        self.second = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)
        self.add_buffers()

    def add_buffers(self) -> None:
        """Register what is unusual."""

    def forward(self, x: Tensor) -> Tensor:
        g: Tensor = self.second(self.first(self.conv(x)).relu()).mean((2, 3))
        return self.fc(g + self.own(g.detach()))

    def own(self, g: Tensor) -> Tensor | float:
        """What the buffers add to the features (N, 8)."""
        return 0.0


class SharedStatistics(Net):
    def add_buffers(self) -> None:
        self.second.running_mean = self.first.running_mean


class SharedScale(Net):
    def add_buffers(self) -> None:
        scale = torch.full((8,), 0.5)
        self.first.register_buffer("scale", scale)
        self.second.register_buffer("scale", scale)

    def own(self, g: Tensor) -> Tensor:
        total: Tensor = self.first.scale + self.second.scale
        return total


class NoLongerShared(SharedScale):
    """Replaces one of two buffers that were the same tensor."""

    def own(self, g: Tensor) -> Tensor:
        self.second.scale = self.second.scale + g.mean(0)
        return super().own(g)


class Expanded(Net):
    def add_buffers(self) -> None:
        self.register_buffer("offset", torch.tensor(0.5).expand(8))

    def own(self, g: Tensor) -> Tensor:
        offset: Tensor = self.offset
        return offset


class ExpandedInForward(Expanded):
    def own(self, g: Tensor) -> Tensor:
        self.offset = g.mean().expand(8)
        return super().own(g)


class Registered(Net):
    """Registers two buffers in its first forward pass, and counts passes in a third that is a scalar."""

    def add_buffers(self) -> None:
        self.register_buffer("passes", None)

    def own(self, g: Tensor) -> Tensor:
        if not hasattr(self, "memory"):
            self.register_buffer("memory", torch.zeros(8))
            self.register_buffer("last", torch.zeros(8), persistent=False)
        self.memory, self.last = 0.9 * self.memory + 0.1 * g.mean(0), self.last + g.mean(0)
        self.passes = torch.tensor(1) if self.passes is None else self.passes + 1
        return self.memory + self.last


class Retyped(Net):
    """Turns a buffer of integers into one of floats, and one of floats into one of doubles."""

    def add_buffers(self) -> None:
        self.register_buffer("seen", torch.zeros(8, dtype=torch.long))
        self.register_buffer("sum", torch.zeros(8))

    def own(self, g: Tensor) -> Tensor:
        self.seen, self.sum = self.seen + g.mean(0), self.sum.double() + g.mean(0)
        return (self.seen + self.sum).float()


class Dropped(Net):
    """Removes a buffer after its first use."""

    def add_buffers(self) -> None:
        self.register_buffer("once", torch.ones(8))

    def own(self, g: Tensor) -> Tensor | float:
        once, self.once = self.once, None
        return 0.0 if once is None else once


NETS = (SharedStatistics, SharedScale, NoLongerShared, Expanded, ExpandedInForward, Registered, Retyped, Dropped)
every_net = pytest.mark.parametrize("net", NETS)


@every_net
def test_a_loaded_adapter_continues_bit_for_bit(net: Callable[[], nn.Module], tmp_path: Path) -> None:
    adapter = ctta.DMSE(net())
    adapter.step(X[0])
    adapter.step(X[1])
    adapter.save(tmp_path / "a.ctta")
    used = ctta.DMSE(net())
    used.step(X[3])
    used.load_state_dict(adapter.state_dict())
    for resumed in (ctta.DMSE.load(tmp_path / "a.ctta", net()), used):
        assert difference(adapter.state_dict(), resumed.state_dict()) is None
        twin = ctta.DMSE(net())
        twin.load_state_dict(adapter.state_dict())
        assert difference(twin.step(X[2]).logits, resumed.step(X[2]).logits) is None
        assert difference(twin.state_dict(), resumed.state_dict()) is None


@every_net
def test_reset_returns_to_a_new_adapter_and_so_does_reset_every(net: Callable[[], nn.Module]) -> None:
    adapter, new = ctta.Tent(net()), ctta.Tent(net())
    adapter.step(X[1])
    adapter.reset()
    assert difference(new.state_dict(), adapter.state_dict()) is None
    first = new.step(X[0])
    assert difference(first.logits, adapter.step(X[0]).logits) is None
    again = ctta.Tent(net(), reset_every=1)
    again.step(X[1])
    assert difference(first.logits, again.step(X[0]).logits) is None


@every_net
def test_predictions_and_interrupted_steps_leave_no_trace(net: Callable[[], nn.Module]) -> None:
    adapter = ctta.Tent(net())
    adapter.step(X[0])
    before = adapter.state_dict()
    adapter.predict(X[1])
    assert difference(before, adapter.state_dict()) is None
    with mock.patch.object(adapter, "_drop_gradients", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        adapter.step(X[1])
    assert difference(before, adapter.state_dict()) is None


def test_modules_that_share_a_buffer_share_it_after_a_reset_and_a_conversion() -> None:
    adapter = ctta.Tent(NoLongerShared())
    adapter.step(X[0])
    model = adapter.student.model
    assert model.first.scale is not model.second.scale
    adapter.reset()
    assert model.first.scale is model.second.scale
    adapter.double()
    assert model.first.scale is model.second.scale and model.first.scale.dtype == torch.float64


def test_a_state_that_was_not_saved_with_a_resized_buffer_is_refused_if_it_has_one() -> None:
    state = ctta.Tent(SharedScale()).state_dict()
    state["student.model.first.scale"] = torch.zeros(3)
    with pytest.raises(errors.CheckpointError, match=r"of another shape: \['student.model.first.scale'"):
        ctta.Tent(SharedScale()).load_state_dict(state)


class Keyed(Net):
    """Has extra state under keys that are written alike."""

    def add_buffers(self) -> None:
        self.kept = {1: torch.zeros(2), "1": torch.ones(2), "a/b": torch.ones(1), "a": {"b": torch.zeros(1)}}

    def get_extra_state(self) -> object:
        return self.kept

    def set_extra_state(self, state: dict[object, Tensor]) -> None:
        self.kept = state


def test_tensors_of_extra_state_under_keys_that_are_written_alike_stay_apart(tmp_path: Path) -> None:
    ctta.Tent(Keyed()).save(tmp_path / "a.ctta")
    assert difference(Keyed().kept, ctta.Tent.load(tmp_path / "a.ctta", Keyed()).student.model.kept) is None
