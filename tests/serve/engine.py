"""A service on a tiny network, and adapters whose learning waits for the test."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ctta
from ctta._adapter.checkpoint import read
from ctta.adapter import Adapter, Learning, Step
from ctta.serve.service import Service
from ctta.serve.types import Ask, Limits, Reply
from ctta.testing.compare import difference
from ctta.testing.models import bn_cnn

WAIT = 120.0
#: No request waits for others, and every batch is learnt from.
LIMITS = Limits(wait=0.0, learn_share=1.0, save_every=1000)


@cache
def classifier() -> ctta.Classifier:
    """The source model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ctta.Classifier(bn_cnn())


def tent(source: ctta.Classifier) -> Adapter:
    """An adapter whose steps are large enough to show."""
    return ctta.Tent(source, lr=0.01)


def images(count: int, seed: int = 0) -> Tensor:
    """Random images."""
    return torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


@contextmanager
def serving(
    state: Path | None = None,
    make: Callable[[ctta.Classifier], Adapter] = tent,
    *,
    limits: Limits = LIMITS,
    **options: Any,
) -> Iterator[Service]:
    """Run a service, and close it on exit."""
    service = Service(classifier(), make, name="tiny", state=state, limits=limits, **options)
    try:
        yield service
    finally:
        service.close()


def ask(service: Service, x: Tensor, stream: str = "cam", **more: Any) -> Reply:
    """Send a request and wait for its reply."""
    return service.submit(Ask(stream, x, **more)).result(WAIT)


class Held(ctta.Tent):
    """Tent that pauses before learning until the test opens the gate."""

    gate = threading.Event()
    learning = threading.Event()

    def adapt(self, x: Tensor) -> Learning:
        """Take Tent's step, with a pause between the prediction and learning."""
        work = super().adapt(x)
        yield next(work)
        Held.learning.set()
        assert Held.gate.wait(WAIT)
        try:
            while True:
                next(work)
        except StopIteration as done:
            step: Step = done.value
            return step


@contextmanager
def held_learning(window: int | None = None) -> Iterator[Callable[[ctta.Classifier], Adapter]]:
    """Yield a factory whose adapters stop before they learn; on exit they continue."""
    Held.gate.clear()
    Held.learning.clear()
    try:
        yield lambda source: Held(source, lr=0.01, window=window)
    finally:
        Held.gate.set()


def same(one: bytes, other: bytes) -> bool:
    """Whether two checkpoint files hold the same state, bit for bit; their headers may be in another order."""
    return difference(_state(one), _state(other)) is None


def _state(data: bytes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        path.write_bytes(data)
        return read(path)[1]
