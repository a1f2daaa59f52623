"""One client or one failure cannot affect the others."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.adapter import Learning
from ctta.errors import (
    HeadNotFound,
    ImageDtype,
    ImageRange,
    ImageShape,
    LearnerStopped,
    NonFiniteImages,
    ParameterError,
    QueueFull,
    TooManyStreams,
)
from ctta.guard import parse_rules
from ctta.serve.service import Service
from ctta.serve.types import Ask
from serve.engine import LIMITS, WAIT, Held, ask, classifier, held_learning, images, serving, tent


def broken(value: float) -> Tensor:
    x = images(4)
    x[1, 0, 3, 3] = value
    return x


@pytest.mark.parametrize(
    ("x", "error"),
    [
        (broken(float("nan")), NonFiniteImages),
        (broken(float("inf")), NonFiniteImages),
        (broken(255.0), ImageRange),
        (images(4).mul(255).byte(), ImageDtype),
    ],
)
def test_bad_images_are_refused_before_they_meet_the_requests_of_others(x: Tensor, error: type[Exception]) -> None:
    alone = tent(classifier())
    with held_learning() as make, serving(make=make) as service:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        good = service.submit(Ask("cam", images(4)))
        with pytest.raises(error):
            service.submit(Ask("cam", x))
        Held.gate.set()
        reply = good.result(WAIT)
        alone.step(images(8))
        assert reply.learnt
        assert torch.equal(reply.logits, alone.step(images(4)).logits)


def test_images_of_two_sizes_are_two_batches() -> None:
    alone = tent(classifier())
    small, large = images(4), torch.rand(4, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    with held_learning() as make, serving(make=make) as service:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        waiting = [service.submit(Ask("cam", x)) for x in (small, large)]
        Held.gate.set()
        replies = [future.result(WAIT) for future in waiting]
    alone.step(images(8))
    for reply, x in zip(replies, (small, large), strict=True):
        assert torch.equal(reply.logits, alone.step(x).logits)


@pytest.mark.parametrize("shape", [(3, 16, 16), (0, 3, 16, 16), (5, 3, 16, 16), (1, 3, 64, 64)])
def test_requests_beyond_the_limits_are_refused_at_once(shape: tuple[int, ...]) -> None:
    with serving(limits=replace(LIMITS, images=4, pixels=8192)) as service, pytest.raises(ImageShape):
        service.submit(Ask("cam", torch.zeros(shape)))


def test_names_and_ids_that_are_too_long_to_remember_are_refused() -> None:
    with serving() as service:
        with pytest.raises(ParameterError, match="id of a request may have 256"):
            service.submit(Ask("cam", images(2), id="x" * 257))
        with pytest.raises(ParameterError, match="name of a stream may have 128"):
            service.submit(Ask("x" * 129, images(2)))
        with pytest.raises(ParameterError, match="name of a stream"):
            service.put_state("x" * 129, b"")
        assert service.streams() == []


class NoHead(nn.Module):
    """A network whose last layer is not linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3))


def test_a_network_without_a_head_is_refused_with_what_a_service_needs() -> None:
    with pytest.raises(HeadNotFound, match=r"service needs a linear head.*NoHead has none.*Classifier\(model, head="):
        Service(ctta.Classifier(NoHead()), ctta.Source, name="tiny", state=None)


def test_more_streams_than_allowed_are_refused() -> None:
    with serving(limits=replace(LIMITS, streams=2)) as service:
        ask(service, images(2), "a")
        ask(service, images(2), "b")
        with pytest.raises(TooManyStreams):
            ask(service, images(2), "c")
        assert ask(service, images(2), "a").learnt


def test_a_learner_that_hangs_fills_the_queue_and_not_the_memory() -> None:
    limits = replace(LIMITS, queue=16)
    with held_learning() as make, serving(make=make, limits=limits) as service:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        waiting = [service.submit(Ask("cam", images(8, i))) for i in range(2)]
        for _ in range(50):
            with pytest.raises(QueueFull) as full:
                service.submit(Ask("cam", images(8)))
            assert full.value.retry_after > 0
        assert service.stream("cam").queue == 16
        Held.gate.set()
        assert all(future.result(WAIT).logits.shape == (8, 10) for future in waiting)


def test_large_images_fill_the_queue_sooner() -> None:
    # Eight requests of the largest size may wait, whatever the number of their images.
    limits = replace(LIMITS, queue=1000, pixels=images(8).numel())
    with held_learning() as make, serving(make=make, limits=limits) as service:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        for i in range(8):
            service.submit(Ask("cam", images(8, i)))
        with pytest.raises(QueueFull, match="numbers"):
            service.submit(Ask("cam", images(1)))
        Held.gate.set()


class Dies(ctta.Tent):
    """Ends its thread in the second step, on request."""

    waits = threading.Event()

    def adapt(self, x: Tensor) -> Learning:
        if self.steps:
            assert Dies.waits.wait(WAIT)
            raise SystemExit("the learner is gone")
        return (yield from super().adapt(x))  # type: ignore[misc]


def test_a_learner_that_died_fails_its_requests_and_refuses_others() -> None:
    Dies.waits.clear()
    with serving(make=lambda source: Dies(source, lr=0.01)) as service:
        assert ask(service, images(8)).learnt
        assert service.ready()
        # The first request kills the thread that takes it; the second waits behind it.
        taken = service.submit(Ask("cam", images(8)))
        left = service.submit(Ask("cam", torch.rand(8, 3, 24, 24)))
        Dies.waits.set()
        for future in (taken, left):
            with pytest.raises(LearnerStopped, match="learner is gone"):
                future.result(WAIT)
        for _ in range(20):
            with pytest.raises(LearnerStopped):
                service.submit(Ask("cam", images(8)))
        with pytest.raises(LearnerStopped):
            service.snapshot("cam")
        assert not service.ready()
        assert service.stream("cam").queue == 0
        assert ask(service, images(8), "other").learnt


def test_a_request_that_was_cancelled_leaves_the_stream_as_it_is() -> None:
    with held_learning() as make, serving(make=make) as service:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        assert service.submit(Ask("cam", images(8, 1))).cancel()
        Held.gate.set()
        service.state("cam")
        assert service._lanes["cam"].resident
        assert service.stream("cam").learnt == 1
        assert service.stream("cam").queue == 0


@pytest.mark.parametrize("phase", ["ok", "frozen by the guard", "in a fallback"])
def test_one_image_alone_is_answered_in_every_phase(phase: str) -> None:
    action = {"ok": "", "frozen by the guard": "entropy < 100: freeze", "in a fallback": "entropy < 100: fallback"}
    with serving(guard=parse_rules(action[phase])) as service:
        for i in range(3):
            ask(service, images(64, i))
        service.state("cam")
        reply = ask(service, images(1))
        assert reply.logits.isfinite().all()
        assert not reply.learnt
        assert (service.stream("cam").guard == "cooldown") == (phase != "ok")
