"""A service with its model on another device predicts and learns as one on the CPU does."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ctta.registry import get_method
from ctta.serve.service import Service
from ctta.serve.types import Ask, Limits
from ctta.testing.compare import difference
from device.cases import CASES, batches, on_cpu

WAIT = 120.0
LIMITS = Limits(wait=0.0, learn_share=1.0, save_every=1)


def served(method: str, folder: Path, device: torch.device, parts: int) -> list[Any]:
    """The predictions of a stream, which restarts from its folder before every part, a probe and a single image."""
    answers = []
    make = partial(get_method(method), **CASES[method].arguments())
    for part in range(parts):
        service = Service(CASES[method].classifier().to(device), make, name="tiny", state=folder, limits=LIMITS)
        try:
            for x in batches()[part : part + 2]:
                answers.append(service.submit(Ask("cam", x)).result(WAIT).logits)
            service.evict("cam")
            for x in (batches()[0], batches()[0][:1]):
                answers.append(service.submit(Ask("cam", x, learn=False)).result(WAIT).logits)
            service.set_mode("cam", "shadow")
            service.promote("cam")
            service.set_mode("cam", "adapt")
            service.rollback("cam")
            learner = service._lanes["cam"]._keeper.learner
            assert learner is not None
            answers.append(on_cpu(learner.adapter.inner.state_dict()))
        finally:
            service.close()
    return answers


@cache
def on_the_cpu(method: str, folder: Path) -> list[Any]:
    return served(method, folder, torch.device("cpu"), 2)


@pytest.fixture
def expected(method: str, tmp_path: Path) -> list[Any]:
    """The same service on the CPU, before the device exists."""
    return on_the_cpu(method, tmp_path / "cpu")


@pytest.mark.parametrize("method", ["tent", "dmse", "rotta"])
def test_a_service_on_the_device(expected: list[Any], device: torch.device, method: str, tmp_path: Path) -> None:
    found = served(method, tmp_path / "device", device, 2)
    assert all(answer.device.type == "cpu" for answer in found if isinstance(answer, torch.Tensor))
    assert difference(expected, found) is None


@pytest.mark.parametrize("method", ["tent"])
def test_a_stream_moves_between_devices(expected: list[Any], device: torch.device, method: str, tmp_path: Path) -> None:
    first = served(method, tmp_path / "state", device, 1)
    assert difference(expected[: len(first)], first) is None
    service = Service(
        CASES[method].classifier(),
        partial(get_method(method), **CASES[method].arguments()),
        name="tiny",
        state=tmp_path / "state",
        limits=LIMITS,
    )
    try:
        reply = service.submit(Ask("cam", batches()[1])).result(WAIT)
        assert torch.equal(reply.logits, expected[len(first)])
    finally:
        service.close()
