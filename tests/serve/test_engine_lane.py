"""A lane: requests get their own rows, replies leave before learning, and nothing accepted is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import ctta
from ctta._adapter.checkpoint import serialised
from ctta.errors import (
    LabelError,
    ParameterError,
    ServiceClosing,
    UnknownLane,
    WrongMode,
)
from ctta.serve.inbox import Inbox
from ctta.serve.types import Ask, Limits
from serve.engine import LIMITS, WAIT, Held, ask, classifier, held_learning, images, same, serving, tent


def test_a_stream_answers_and_learns_as_its_adapter_would_alone() -> None:
    alone = tent(classifier())
    with serving() as service:
        for i in range(4):
            reply = ask(service, images(8, i))
            assert torch.equal(reply.logits, alone.step(images(8, i)).logits)
            assert (reply.steps, reply.learnt, reply.mode) == (i, True, "adapt")


def test_a_reply_leaves_before_the_learning_starts() -> None:
    with held_learning() as make, serving(make=make) as service:
        assert ask(service, images(8)).logits.shape == (8, 10)
        assert Held.learning.wait(WAIT)
        assert service.stream("cam").learnt == 0
        Held.gate.set()


def test_requests_that_wait_together_are_one_batch_and_get_their_own_rows() -> None:
    alone = tent(classifier())
    with held_learning() as make, serving(make=make) as service:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        waiting = [service.submit(Ask("cam", images(n, seed=n))) for n in (1, 2, 3)]
        Held.gate.set()
        replies = [future.result(WAIT) for future in waiting]
    alone.step(images(8))
    expected = alone.step(torch.cat([images(n, seed=n) for n in (1, 2, 3)])).logits.split([1, 2, 3])
    assert all(torch.equal(reply.logits, rows) for reply, rows in zip(replies, expected, strict=True))
    assert [reply.steps for reply in replies] == [1, 1, 1]


def test_a_full_batch_does_not_wait_for_company_and_a_small_one_waits_no_longer_than_it_may() -> None:
    now = [0.0]
    inbox = Inbox("cam", replace(LIMITS, batch=4, wait=1e6), lambda: now[0], lambda: 1.0)
    for n in (1, 2, 1, 3):
        inbox.submit(Ask("cam", images(n)))
    assert [len(request.ask.images) for request in inbox.next(None)] == [1, 2, 1]  # type: ignore[union-attr]
    now[0] = 1e6
    assert [len(request.ask.images) for request in inbox.next(None)] == [3]  # type: ignore[union-attr]
    assert inbox.images == 0


def test_operations_go_ahead_of_waiting_requests() -> None:
    with held_learning() as make, serving(make=make) as service, ThreadPoolExecutor(1) as caller:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        waiting = service.submit(Ask("cam", images(8, 1)))
        inbox = service._lanes["cam"]._inbox
        frozen = caller.submit(service.set_mode, "cam", "frozen")
        while not inbox._operations:
            pass
        Held.gate.set()
        frozen.result(WAIT)
        assert waiting.result(WAIT).mode == "frozen"


def test_many_threads_get_their_own_rows_and_streams_are_never_mixed() -> None:
    # Frozen and without batch statistics, a prediction depends on its own image only.
    source = ctta.Source(classifier())
    wanted = {(s, i): source.predict(images(1 + i % 3, seed=100 * s + i)) for s in range(3) for i in range(20)}
    limits = Limits(wait=0.001, queue=10_000)
    with serving(make=ctta.Source, limits=limits) as service, ThreadPoolExecutor(8) as threads:

        def send(key: tuple[int, int]) -> torch.Tensor:
            stream, i = key
            return ask(service, images(1 + i % 3, seed=100 * stream + i), f"cam{stream}", id=f"{i}").logits

        for key, logits in zip(wanted, threads.map(send, wanted), strict=True):
            torch.testing.assert_close(logits, wanted[key])
        assert [status.answered for status in service.streams()] == [sum(1 + i % 3 for i in range(20))] * 3


def test_two_streams_learn_apart() -> None:
    alone = {name: tent(classifier()) for name in ("a", "b")}
    with serving() as service:
        for i in range(3):
            for seed, name in enumerate(alone):
                x = images(8, 10 * i + seed)
                assert torch.equal(ask(service, x, name).logits, alone[name].step(x).logits)


def test_single_images_are_learnt_with_a_window() -> None:
    with serving(make=lambda source: ctta.Tent(source, window=4)) as service:
        for i in range(8):
            ask(service, images(1, i))
        service.snapshot("cam")
        assert service.stream("cam").steps == 2


def test_a_probe_is_answered_and_leaves_no_trace() -> None:
    with serving() as service:
        ask(service, images(8))
        before = service.state("cam")
        assert not ask(service, images(8, 1), learn=False).learnt
        assert same(service.state("cam"), before)


def test_a_repeated_id_is_answered_and_not_learnt_again() -> None:
    with serving() as service:
        assert ask(service, images(8), id="one").learnt
        before = service.state("cam")
        assert not ask(service, images(8), id="one").learnt
        assert same(service.state("cam"), before)


def test_requests_are_answered_from_the_state_before_while_the_stream_learns() -> None:
    before, after = tent(classifier()), tent(classifier())
    after.step(images(8))
    after.step(torch.cat([images(n, seed=n) for n in (2, 3)]))
    limits = replace(LIMITS, learn_share=0.5)
    with held_learning() as make, serving(make=make, limits=limits) as service:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        for n in (2, 3):
            reply = ask(service, images(n, seed=n))
            assert torch.equal(reply.logits, before.predict(images(n, seed=n)))
            assert (reply.steps, reply.learnt) == (0, True)
        assert service.stream("cam").learnt == 0
        Held.gate.set()
        # What was answered meanwhile is learnt as one batch.
        service.snapshot("cam")
        assert torch.equal(ask(service, images(8, 1), learn=False).logits, after.predict(images(8, 1)))
        assert service.stream("cam").learnt == 2


def test_a_busy_stream_learns_its_share_and_counts_the_rest() -> None:
    limits = replace(LIMITS, learn_share=0.25, batch=2)
    with held_learning() as make, serving(make=make, limits=limits) as service:
        ask(service, images(2))
        assert Held.learning.wait(WAIT)
        waiting = [service.submit(Ask("cam", images(2, i))) for i in range(9)]
        # One batch may wait to be learnt. The next three are shed, and the one after them may not be.
        assert [future.result(WAIT).learnt for future in waiting[:4]] == [True, False, False, False]
        assert not any(future.done() for future in waiting[4:])
        Held.gate.set()
        learnt = [future.result(WAIT).learnt for future in waiting]
        service.snapshot("cam")
        status = service.stream("cam")
    assert all(any(learnt[i : i + 4]) for i in range(6))
    assert (status.learnt, status.shed) == (1 + sum(learnt), 9 - sum(learnt))


def test_nothing_is_answered_while_a_stream_learns_that_must_learn_everything_in_order() -> None:
    with held_learning() as make, serving(make=make) as service:
        ask(service, images(2))
        assert Held.learning.wait(WAIT)
        waiting = service.submit(Ask("cam", images(2, 1)))
        assert service.stream("cam").queue == 2
        Held.gate.set()
        assert waiting.result(WAIT).steps == 1


def test_an_operation_waits_for_what_was_answered_before_it() -> None:
    limits = replace(LIMITS, learn_share=0.5)
    with held_learning() as make, serving(make=make, limits=limits) as service, ThreadPoolExecutor(1) as caller:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        ask(service, images(8, 1))
        frozen = caller.submit(service.set_mode, "cam", "frozen")
        inbox = service._lanes["cam"]._inbox
        while not inbox.has_operation:
            pass
        Held.gate.set()
        frozen.result(WAIT)
        assert (service.stream("cam").steps, service.stream("cam").mode) == (2, "frozen")


def test_the_window_of_a_stream_holds_what_was_answered_while_it_learnt() -> None:
    alone = Held(classifier(), lr=0.01, window=4)
    limits = replace(LIMITS, learn_share=0.5, batch=2)
    with held_learning(window=4) as make, serving(make=make, limits=limits) as service:
        ask(service, images(4))
        assert Held.learning.wait(WAIT)
        first, second = images(1, 1), images(1, 2)
        alone._window.push(images(4))  # type: ignore[union-attr]
        assert torch.equal(ask(service, first).logits, alone.predict(first))
        alone._window.push(first)  # type: ignore[union-attr]
        assert torch.equal(ask(service, second).logits, alone.predict(second))
        Held.gate.set()


def test_requests_that_come_far_apart_do_not_wait_for_each_other() -> None:
    now = [0.0]
    inbox = Inbox("cam", replace(LIMITS, batch=64, wait=1.0), lambda: now[0], lambda: 1.0)
    for _ in range(8):
        inbox.submit(Ask("cam", images(1)))
        now[0] += 5.0
        assert len(inbox.next(None)) == 1  # type: ignore[arg-type]
    inbox.submit(Ask("cam", images(1)))
    # At the clock of its arrival: it would have to wait a second for others.
    assert len(inbox.next(None)) == 1  # type: ignore[arg-type]


def test_a_frozen_stream_answers_and_does_not_change() -> None:
    with serving() as service:
        ask(service, images(8))
        service.set_mode("cam", "frozen")
        before = service.state("cam")
        reply = ask(service, images(8, 1))
        assert (reply.mode, reply.learnt) == ("frozen", False)
        assert same(service.state("cam"), before)


def test_in_shadow_the_champion_answers_until_the_challenger_is_promoted() -> None:
    champion, challenger = tent(classifier()), tent(classifier())
    with serving() as service:
        service.put_state("cam", serialised(tent(classifier())))
        service.set_mode("cam", "shadow")
        for i in range(3):
            reply = ask(service, images(8, i))
            assert torch.equal(reply.logits, champion.predict(images(8, i)))
            assert reply.learnt
            challenger.step(images(8, i))
        service.promote("cam")
        assert torch.equal(ask(service, images(8, 5), learn=False).logits, challenger.predict(images(8, 5)))
        service.promote("cam")
        assert torch.equal(ask(service, images(8, 5), learn=False).logits, champion.predict(images(8, 5)))


def test_only_a_stream_in_shadow_mode_can_be_promoted() -> None:
    with serving() as service:
        ask(service, images(8))
        with pytest.raises(WrongMode, match="shadow"):
            service.promote("cam")


def test_close_under_load_answers_everything_that_was_accepted() -> None:
    accepted, refused = [], threading.Event()
    with serving(limits=replace(LIMITS, queue=10_000)) as service:

        def send(seed: int) -> None:
            try:
                while True:
                    accepted.append(service.submit(Ask(f"cam{seed % 2}", images(2, seed))))
                    if len(accepted) > 60:
                        refused.set()
            except ServiceClosing:
                pass

        threads = [threading.Thread(target=send, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        assert refused.wait(WAIT)
        service.close()
        for thread in threads:
            thread.join(WAIT)
        assert all(future.done() and future.result().logits.shape == (2, 10) for future in accepted)


def test_a_batch_that_cannot_be_answered_fails_alone() -> None:
    with serving() as service:
        ask(service, images(8))
        with pytest.raises(Exception, match="channels"):
            ask(service, torch.rand(8, 5, 16, 16))
        assert ask(service, images(8)).learnt


def test_labels_give_the_error_of_the_answers_as_they_were_made() -> None:
    with serving() as service:
        answers = {f"r{i}": ask(service, images(4, i), id=f"r{i}").logits.argmax(1) for i in range(2)}
        wrong = {"r0": answers["r0"].tolist(), "r1": [(c + 1) % 10 for c in answers["r1"].tolist()], "never": [1]}
        report = service.labels("cam", wrong)
        assert (report.error, report.labelled, report.unknown) == (50.0, 8, ("never",))
        report = service.labels("cam", {"r1": answers["r1"].tolist()})
        assert (report.error, report.labelled) == (0.0, 8)
        with pytest.raises(LabelError):
            service.labels("cam", {"r0": [10, 0, 0, 0]})


def test_only_the_last_request_ids_are_remembered() -> None:
    with serving(limits=replace(LIMITS, remembered=2)) as service:
        for i in range(3):
            ask(service, images(2, i), id=f"r{i}")
        assert service.labels("cam", {f"r{i}": [0, 0] for i in range(3)}).unknown == ("r0",)


def test_events_tell_of_every_batch_and_drop_the_oldest() -> None:
    with serving() as service:
        ask(service, images(2))
        events = service.subscribe("cam")
        for i in range(300):
            ask(service, images(1, i), learn=False)
        service.snapshot("cam")
        assert events.qsize() == events.maxsize
        event = events.get(timeout=WAIT)
        assert (event["stream"], event["do"], event["images"]) == ("cam", "answer", 1)
        service.unsubscribe("cam", events)


def test_unknown_streams_and_modes_are_named_errors() -> None:
    with serving() as service:
        with pytest.raises(UnknownLane):
            service.stream("nobody")
        ask(service, images(2))
        with pytest.raises(ParameterError, match="mode"):
            service.set_mode("cam", "dreaming")  # type: ignore[arg-type]
