"""Mistakes of a method of one's own are named, before a stream is spent on it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.adapter import Adapter, Learning, Step
from ctta.errors import MethodError
from ctta.functional import entropy
from reference import net


class Own(Adapter):
    """A method like Tent; the classes below forget one thing each."""

    passes = (1, 1)

    def __init__(self, model: nn.Module, **shared: Any) -> None:
        super().__init__(model, **shared)
        self.begin(self.student.parameters())

    def adapt(self, x: Tensor) -> Learning:
        logits = self.student(x)
        yield logits.detach()
        loss = entropy(logits).mean()
        self.descend(loss)
        return Step(logits.detach(), loss.item())


class WithoutPasses(Adapter):
    def __init__(self, model: nn.Module, **shared: Any) -> None:
        super().__init__(model, **shared)
        self.begin(self.student.parameters())


class Forgets(Own):
    def __init__(self, model: nn.Module, *, scale: float = 1.0, **shared: Any) -> None:
        super().__init__(model, **shared)


class TrainsItsBuffer(Own):
    def __init__(self, model: nn.Module, **shared: Any) -> None:
        Adapter.__init__(self, model, **shared)
        self.register_buffer("shift", torch.zeros(3))
        self.begin([*self.student.parameters(), self.shift])  # type: ignore[list-item]


class TrainsStatistics(Own):
    def __init__(self, model: nn.Module, **shared: Any) -> None:
        Adapter.__init__(self, model, **shared)
        self.begin(self.student.buffers())  # type: ignore[arg-type]


class ReturnsNothing(Own):
    def adapt(self, x: Tensor) -> Any:
        self.descend(entropy(self.student(x)).mean())


class ReturnsLogits(Own):
    def adapt(self, x: Tensor) -> Any:
        return self.student(x)


class ForgetsTheStep(Own):
    def adapt(self, x: Tensor) -> Any:
        logits = self.student(x)
        yield logits.detach()
        self.descend(entropy(logits).mean())


def test_a_method_that_forgets_nothing_learns() -> None:
    assert Own(net()).step(torch.rand(4, 3, 16, 16)).loss is not None


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (WithoutPasses, r"declares no passes. Add passes = \(forward, backward\)"),
        (Forgets, "takes 'scale' and does not store it.*self.scale = scale"),
        (TrainsItsBuffer, "the buffer 'shift'"),
        (TrainsStatistics, "the buffer 'student.model"),
    ],
)
def test_a_mistake_in_the_constructor_is_named_there(method: type[Adapter], words: str) -> None:
    with pytest.raises(MethodError, match=words):
        method(net())


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (ReturnsNothing, "returned NoneType. Return a ctta.adapter.Step"),
        (ReturnsLogits, "returned Tensor"),
        (ForgetsTheStep, "yielded the logits and then returned NoneType"),
    ],
)
def test_a_mistake_in_a_step_is_named_and_changes_nothing(method: type[Adapter], words: str) -> None:
    adapter = method(net())
    before = {name: value.clone() for name, value in adapter.named_parameters()}
    with pytest.raises(MethodError, match=words):
        adapter.step(torch.rand(4, 3, 16, 16))
    assert adapter.steps == 0 and all(torch.equal(value, before[name]) for name, value in adapter.named_parameters())


def test_a_copy_shows_the_same_settings_as_its_original() -> None:
    adapter = ctta.DMSE(net())
    assert repr(copy.deepcopy(adapter)) == repr(adapter) and "view" not in repr(adapter)
