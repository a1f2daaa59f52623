"""Every method gives on another device the numbers it gives on the CPU, wherever and whenever it was moved."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ctta import Classifier
from ctta.adapter import Adapter
from ctta.testing.compare import difference
from device.cases import CASES, MEAN, STATES, STD, batches, on_cpu

every_case = pytest.mark.parametrize("name", CASES)
# Every second one in `make test`, all of them with `make test-trials`.
every_state = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.trial if i % 2 else ()) for i, name in enumerate(STATES)]
)


@cache
def on_the_cpu(name: str) -> tuple[list[Any], Any]:
    """The steps, the last prediction and the state of a stream that never left the CPU."""
    adapter = CASES[name].build(CASES[name].classifier())
    with sdpa_kernel(SDPBackend.MATH):
        return ended(adapter, [adapter.step(x) for x in batches()])


@pytest.fixture
def expected(name: str) -> tuple[list[Any], Any]:
    """The stream on the CPU, run before the device exists."""
    return on_the_cpu(name)


def ended(adapter: Adapter, steps: list[Any]) -> tuple[list[Any], Any]:
    state = adapter.state_dict()
    extra = state["_extra_state"]
    if extra["optimizer"] is not None:
        extra["optimizer"] = extra["optimizer"]["state"]  # without the learning rate, an argument
    return on_cpu([*steps, adapter.predict(batches()[0])]), on_cpu(state)


def away(adapter: Adapter, device: torch.device) -> list[str]:
    """Tensors of an adapter that are not on the device; Adam's step counters and the generator belong to the CPU."""
    # A remembered scalar may stay behind: torch lets it combine with tensors of any device.
    source = {f"source of {name}": value for name, value in adapter._initial.items() if value.dim() > 0}
    held = {**adapter._state(), **source}
    if adapter._window is not None and adapter._window.images is not None:
        held["window"] = adapter._window.images
    if adapter._optimizer is not None:
        for i, state in enumerate(adapter._optimizer.state.values()):
            held |= {f"{key} {i}": v for key, v in state.items() if isinstance(v, torch.Tensor) and key != "step"}
    return [name for name, value in held.items() if value.device != device]


@every_case
def test_a_model_that_was_moved_first(expected: Any, device: torch.device, name: str) -> None:
    adapter = CASES[name].build(CASES[name].classifier().to(device))
    assert away(adapter, device) == []
    steps = [adapter.step(x) for x in batches()]  # images from a loader on the CPU
    assert {step.logits.device for step in steps} == {device}
    assert away(adapter, device) == []
    assert difference(expected, ended(adapter, steps)) is None


@every_state
def test_an_adapter_that_moves_along_the_stream(expected: Any, device: torch.device, name: str) -> None:
    adapter = CASES[name].build(CASES[name].classifier())
    steps = []
    for x, place in zip(batches(), ("cpu", device, "cpu"), strict=True):
        adapter.to(place)
        assert away(adapter, torch.device(place)) == []
        steps.append(adapter.step(x.to(place)))
    assert difference(expected, ended(adapter, steps)) is None


@every_state
def test_a_checkpoint_crosses_devices(expected: Any, device: torch.device, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    adapter = case.build(case.classifier().to(device))
    steps = [adapter.step(batches()[0])]
    adapter.save(tmp_path / "from the device")
    here = case.load(tmp_path / "from the device", case.classifier())
    assert away(here, torch.device("cpu")) == []
    steps.append(here.step(batches()[1]))
    here.save(tmp_path / "from the CPU")
    there = case.load(tmp_path / "from the CPU", case.classifier().to(device))
    assert away(there, device) == []
    steps.append(there.step(batches()[2]))
    assert difference(expected, ended(there, steps)) is None


@every_state
def test_reset_and_restore_return_to_the_source_where_it_is_now(expected: Any, device: torch.device, name: str) -> None:
    adapter = CASES[name].build(CASES[name].classifier())
    adapter.step(batches()[1])
    adapter.to(device)
    adapter.step(batches()[2])
    adapter.restore()
    assert away(adapter, device) == []
    adapter.reset()
    assert away(adapter, device) == []
    assert difference(expected[0][:2], on_cpu([adapter.step(x) for x in batches()[:2]])) is None


def test_a_classifier_built_around_a_model_on_the_device_normalises_there(device: torch.device) -> None:
    case, x = CASES["tent"], batches()[0]
    classifier = Classifier(case.source().to(device), mean=MEAN, std=STD)
    assert torch.equal(classifier(x.to(device)).cpu(), case.classifier()(x))
    assert classifier.digest() == case.classifier().digest()


@pytest.mark.parametrize("name", ["dmse with prototypes", "eata with fisher", "rmt replaying"])
def test_what_is_given_on_the_device_serves_a_model_on_the_cpu(expected: Any, device: torch.device, name: str) -> None:
    moved = {k: _on(v, device) for k, v in CASES[name].arguments().items()}
    with mock.patch.object(type(CASES[name]), "arguments", lambda self: moved):
        adapter = CASES[name].build(CASES[name].classifier())
    assert away(adapter, torch.device("cpu")) == []
    assert difference(expected, ended(adapter, [adapter.step(x) for x in batches()])) is None


def _on(value: Any, device: torch.device) -> Any:
    if isinstance(value, list):
        return [tuple(part.to(device) for part in pair) for pair in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", ["tent", "tent with a window"])
def test_broken_images_are_answered_around_on_the_device(device: torch.device, name: str) -> None:
    case = CASES[name]
    x = batches()[0].clone()
    x[3, 0, 0, 0] = float("nan")
    answers = []
    for model in (case.classifier(), case.classifier().to(device)):
        adapter = type(case.build(model))(model, **case.arguments(), invalid="answer")
        answers.append(on_cpu([adapter.step(x), adapter.predict(x), adapter.step(batches()[1])]))
    assert difference(*answers) is None


def test_bf16_asks_for_the_autocast_of_the_device(device: torch.device) -> None:
    adapter = type(CASES["tent"].build(CASES["tent"].classifier()))(
        CASES["tent"].classifier().to(device), precision="bf16"
    )
    with mock.patch.object(torch, "autocast", wraps=torch.autocast) as asked:
        adapter.step(batches()[0])
    assert {call.args[0] for call in asked.call_args_list} == {device.type}
