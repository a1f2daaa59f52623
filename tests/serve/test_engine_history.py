"""Snapshots, restarts, evictions, the audit and its replay."""

from __future__ import annotations

import copy
import errno
import gc
import math
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ctta
from ctta._adapter.checkpoint import Capture, serialised
from ctta.adapter import Adapter
from ctta.errors import (
    BadData,
    MethodMismatch,
    NotACheckpoint,
    NotSaved,
    SourceMismatch,
    StateInUse,
    UnknownSnapshot,
)
from ctta.guard import parse_rules
from ctta.serve.audit import Line, read_audit, read_stream, requests_of
from ctta.serve.replay import replay
from ctta.serve.service import Service
from ctta.serve.types import Ask, Limits
from running import wait_for
from serve.engine import LIMITS, WAIT, Held, ask, classifier, held_learning, images, same, serving, tent


def test_a_rollback_returns_to_the_snapshot_bit_for_bit() -> None:
    with serving() as service:
        ask(service, images(8))
        kept = service.snapshot("cam")
        before = service.state("cam")
        ask(service, images(8, 1))
        assert not same(service.state("cam"), before)
        assert service.rollback("cam", kept.name).name == kept.name
        assert same(service.state("cam"), before)
        with pytest.raises(UnknownSnapshot):
            service.rollback("cam", "99999999")


def test_a_reset_returns_to_the_source() -> None:
    with serving() as service:
        ask(service, images(8))
        service.reset("cam")
        assert same(service.state("cam"), serialised(tent(classifier())))
        assert service.stream("cam").resets == 1


def test_the_last_snapshots_and_the_pinned_ones_are_kept(tmp_path: Path) -> None:
    with serving(tmp_path, limits=replace(LIMITS, keep=2)) as service:
        ask(service, images(8))
        names = [service.snapshot("cam", pin=i == 0).name for i in range(4)]
        assert [info.name for info in service.stream("cam").snapshots] == [names[0], *names[2:]]
    files = {path.name for path in (tmp_path / "streams" / "cam").glob("*.safetensors")}
    assert files == {f"{name}.safetensors" for name in (names[0], *names[2:])}


def test_a_snapshot_tells_the_health_of_its_stream(tmp_path: Path) -> None:
    with serving(tmp_path, make=ctta.DMSE) as service:
        logits = ask(service, images(64)).logits
        taken = service.snapshot("cam")
        status = service.stream("cam")
    p = logits.double().softmax(1)
    entropy = -(p * p.log()).sum(1).mean().item() / math.log(10)
    assert taken.health["entropy"] == pytest.approx(entropy, abs=1e-5)
    assert taken.health["agreement"] == status.agreement == 1.0  # the first predictions are the source's
    assert taken.health["alpha"] == status.alpha
    assert {"diversity", "loss", "skipped", "drift", "lost_diversity"} <= taken.health.keys()
    assert taken.good
    with serving(tmp_path, make=ctta.DMSE) as service:
        assert service.stream("cam").snapshots[-1].health == taken.health


def test_the_audit_tells_who_asked_and_what_was_decided(tmp_path: Path) -> None:
    limits = replace(LIMITS, learn_share=0.5, batch=2)
    with held_learning() as make, serving(tmp_path, make=make, limits=limits) as service:
        ask(service, images(2), id="first")
        assert Held.learning.wait(WAIT)
        waiting = [
            service.submit(Ask("cam", images(2, 1), id="second")),
            service.submit(Ask("cam", images(1, 2), id="first")),
            service.submit(Ask("cam", images(2, 3), id="probe", learn=False)),
            service.submit(Ask("cam", images(2, 4))),
        ]
        for future in waiting:
            future.result(WAIT)
        Held.gate.set()
    lines = list(read_audit(tmp_path / "streams" / "cam" / "audit.jsonl"))
    assert [line.n for line in lines] == list(range(1, len(lines) + 1))
    told = [(line.do, line.requests, line.shed) for line in lines]
    assert told == [
        ("start", (), False),
        ("learn", (("first", 2),), False),
        ("answer", (("first", 1),), False),
        ("answer", (("probe", 2),), False),
        ("answer", ((None, 2),), True),
        ("learn", (("second", 2),), False),
        ("snapshot", (), False),
    ]


def test_snapshots_are_taken_every_so_many_steps(tmp_path: Path) -> None:
    with serving(tmp_path, limits=replace(LIMITS, save_every=2)) as service:
        for i in range(5):
            ask(service, images(8, i))
    with serving(tmp_path) as service:
        assert service.stream("cam").snapshots[-1].steps == 5


def test_a_restarted_service_goes_on_where_it_stopped(tmp_path: Path) -> None:
    alone = tent(classifier())
    for i in range(4):
        alone.step(images(8, i))
    with serving(tmp_path) as service:
        for i in range(4):
            ask(service, images(8, i), id=f"r{i}")
    with serving(tmp_path) as service:
        assert service.stream("cam").steps == 4
        assert not ask(service, images(8, 3), id="r3", learn=True).learnt
        assert torch.equal(ask(service, images(8, 4)).logits, alone.step(images(8, 4)).logits)


def test_an_evicted_stream_comes_back_bit_equal() -> None:
    with serving() as service:
        for i in range(3):
            ask(service, images(8, i), id=f"r{i}")
        before = service.state("cam")
        service.evict("cam")
        assert not service._lanes["cam"].resident
        assert same(service.state("cam"), before)
        assert not ask(service, images(8, 2), id="r2").learnt


def test_an_idle_stream_is_evicted_by_itself() -> None:
    with serving(limits=replace(LIMITS, idle=0.05)) as service:
        ask(service, images(8))
        events = service.subscribe("cam")
        ask(service, images(8, 1))  # the stream may have been evicted before there was a subscriber
        wait_for(lambda: not service._lanes["cam"].resident)
        while events.get(timeout=WAIT)["do"] != "evict":
            pass
        assert ask(service, images(8, 2)).steps == 2


def test_a_downloaded_state_opens_in_python_and_can_be_put_back(tmp_path: Path) -> None:
    with serving() as service:
        for i in range(3):
            ask(service, images(8, i))
        data = service.state("cam")
        service.put_state("other", data)
        assert same(service.state("other"), data)
    path = tmp_path / "cam.safetensors"
    path.write_bytes(data)
    assert ctta.Tent.load(path, classifier()).steps == 3


def test_a_state_of_another_source_or_method_is_refused_and_changes_nothing() -> None:
    other = copy.deepcopy(classifier())
    with torch.no_grad():
        next(other.parameters()).add_(1)
    with serving() as service:
        ask(service, images(8))
        before = service.state("cam")
        for data, error in (
            (serialised(tent(other)), SourceMismatch),
            (serialised(ctta.BN(classifier())), MethodMismatch),
            (b"nonsense", NotACheckpoint),
        ):
            with pytest.raises(error):
                service.put_state("cam", data)
        forged = tent(classifier())
        with torch.no_grad():
            next(p for n, p in forged.named_parameters() if n in forged._frozen).add_(1)
        with pytest.raises(SourceMismatch):
            service.put_state("cam", serialised(forged))
        assert same(service.state("cam"), before)


def test_streams_share_what_never_learns() -> None:
    with serving() as service:
        ask(service, images(8), "a")
        ask(service, images(8), "b")
        a, b = (service._lanes[name]._keeper.learner.adapter.inner for name in "ab")  # type: ignore[union-attr]
        assert all(a.get_parameter(name).data_ptr() == b.get_parameter(name).data_ptr() for name in a._frozen)
        assert all(one is other for one, other in zip(a._initial.values(), b._initial.values(), strict=True))
        assert not any(p is q for p, q in zip(a.trained, b.trained, strict=True))


def test_loading_a_state_does_not_disturb_the_step_of_another_stream() -> None:
    with held_learning() as make, serving(make=make) as service:
        service.put_state("b", serialised(make(classifier())))
        ask(service, images(8), "a")
        assert Held.learning.wait(WAIT)
        service.rollback("b", service.stream("b").snapshots[-1].name)
        Held.gate.set()
        service.snapshot("a")
        assert service.stream("a").learnt == 1


def test_a_second_service_on_one_folder_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path), pytest.raises(StateInUse, match="Another process"):
        Service(classifier(), tent, name="tiny", state=tmp_path)
    with serving(tmp_path):
        pass


def test_a_full_disk_stops_neither_answers_nor_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving(tmp_path, limits=replace(LIMITS, save_every=1)) as service:
        ask(service, images(8))
        kept = service.snapshot("cam")
        with monkeypatch.context() as patch:
            patch.setattr("ctta.serve.history.write_atomically", full)
            for i in range(3):
                assert ask(service, images(8, i)).learnt
            with pytest.raises(NotSaved, match=r"could not be written \(No space left on device"):
                service.snapshot("cam")
            assert service.stream("cam").snapshots[-1].name == kept.name
        assert service.snapshot("cam").steps == 4


def test_what_a_full_disk_kept_from_being_saved_is_neither_evicted_nor_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    alone = tent(classifier())
    with serving(tmp_path, limits=replace(LIMITS, save_every=1)) as service:
        with monkeypatch.context() as patch:
            patch.setattr("ctta.serve.history.write_atomically", full)
            for i in range(3):
                ask(service, images(8, i))
                alone.step(images(8, i))
            service.evict("cam")
            assert service._lanes["cam"].resident
            assert service.stream("cam").last_snapshot is None
            assert ask(service, images(8), learn=False).snapshot is None
        service.evict("cam")
        assert not service._lanes["cam"].resident
        assert same(service.state("cam"), serialised(alone))
    with serving(tmp_path) as service:
        assert same(service.state("cam"), serialised(alone))


def test_a_line_that_a_full_disk_cut_short_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with serving(tmp_path) as service:
        ask(service, images(8))
        service.state("cam")
        with monkeypatch.context() as patch:
            patch.setattr("ctta.serve.audit.os.write", lambda file, data: write(file, data[:9]))
            ask(service, images(8, 1))
            service.state("cam")
        ask(service, images(8, 2))
    lines = [line.n for line in read_audit(tmp_path / "streams" / "cam" / "audit.jsonl")]
    assert lines == [1, 2, 4, 5]
    with pytest.raises(BadData, match="no line between 2 and 4"):
        replay(tmp_path, tmp_path / "record", "cam", classifier(), tent)


def test_snapshots_are_written_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    whole = Capture.serialised

    def noted(self: Capture) -> bytes:
        threads.add(threading.current_thread().name)
        return whole(self)

    monkeypatch.setattr(Capture, "serialised", noted)
    with serving(limits=replace(LIMITS, save_every=1)) as service:
        ask(service, images(8))
        service.snapshot("cam")
    assert threads == {"ctta-writer"}


def test_a_waiting_stream_holds_no_copy_of_its_state_and_no_images() -> None:
    with serving() as service:
        x = images(8)
        held = weakref.ref(x.untyped_storage())
        ask(service, x)
        del x
        service.state("cam")
        service.snapshot("cam")
        adapter = service._lanes["cam"]._keeper.learner.adapter  # type: ignore[union-attr]
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline and (held() is not None or copies_of(adapter)):
            gc.collect()
        assert held() is None
        assert copies_of(adapter) == 0


def copies_of(adapter: ctta.Guarded) -> int:
    """Tensors in memory that equal a weight of an adapter but are not that weight."""
    weight = adapter.trained[0]
    # By type: isinstance makes some objects emit a warning, and fake tensors of exports have no values.
    tensors = [found for found in gc.get_objects() if type(found) in (torch.Tensor, torch.nn.Parameter)]
    return sum(t is not weight and t.shape == weight.shape and torch.equal(t, weight) for t in tensors)


def test_a_snapshot_can_be_pinned_and_unpinned_later(tmp_path: Path) -> None:
    with serving(tmp_path, limits=replace(LIMITS, keep=1)) as service:
        ask(service, images(8))
        first = service.snapshot("cam").name
        assert service.pin("cam", first).pinned
        service.snapshot("cam")
        assert first in [info.name for info in service.stream("cam").snapshots]
        assert not service.pin("cam", first, pinned=False).pinned
        service.snapshot("cam")
        assert first not in [info.name for info in service.stream("cam").snapshots]
        with pytest.raises(UnknownSnapshot):
            service.pin("cam", first)


def test_a_service_with_other_rules_keeps_what_was_learnt(tmp_path: Path) -> None:
    with serving(tmp_path / "state", record=tmp_path / "record") as service:
        ask(service, images(8))
        before = service.state("cam")
    rules = parse_rules("entropy < 100: fallback")
    with serving(tmp_path / "state", record=tmp_path / "record", guard=rules) as service:
        assert same(service.state("cam"), before)
        for i in range(3):
            ask(service, images(64, i))
        service.snapshot("cam")
        assert service.stream("cam").guard == "cooldown"
    assert replay(tmp_path / "state", tmp_path / "record", "cam", classifier(), tent).different == ()


@pytest.mark.parametrize(("error", "make"), [(MethodMismatch, ctta.BN), (SourceMismatch, tent)])
def test_a_state_folder_of_another_method_or_source_is_refused(
    tmp_path: Path, error: type[Exception], make: Callable[[ctta.Classifier], Adapter]
) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
    other = copy.deepcopy(classifier())
    if error is SourceMismatch:
        with torch.no_grad():
            next(other.parameters()).add_(1)
    with pytest.raises(error, match="another state folder"):
        Service(other, make, name="tiny", state=tmp_path)
    with serving(tmp_path) as service:
        assert service.stream("cam").steps == 1


def test_requests_that_a_crash_lost_may_be_learnt_again() -> None:
    lines = [
        Line(1, "start", 0.0, "adapt", 0),
        Line(2, "learn", 0.0, "adapt", 1, (("kept", 8),)),
        Line(3, "snapshot", 0.0, "adapt", 1, snapshot="00000003"),
        Line(4, "learn", 0.0, "adapt", 2, (("lost", 8),)),
        Line(5, "resume", 0.0, "adapt", 1, snapshot="00000003"),
        Line(6, "answer", 0.0, "adapt", 1, (("probe", 8),)),
        Line(7, "answer", 0.0, "adapt", 1, (("shed", 8), (None, 1)), shed=True),
        Line(8, "learn", 0.0, "adapt", 2, (("again", 8),)),
        Line(9, "snapshot", 0.0, "adapt", 2, snapshot="00000009"),
        Line(10, "learn", 0.0, "adapt", 3, (("too late", 8),)),
    ]
    assert requests_of(lines, until=9, count=100) == ["kept", "shed", "again"]
    assert requests_of(lines, until=9, count=2) == ["shed", "again"]


def test_a_second_process_on_one_folder_is_refused(tmp_path: Path) -> None:
    second = (
        "import sys; from pathlib import Path; from ctta.serve.lock import FolderLock; FolderLock(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", second, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with serving(tmp_path):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert "StateInUse: Another process serves the streams" in done.stderr


def test_stream_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    names = ["../up", ".", "..", "a/b", "é" * 128, "x\0y"]
    with serving(tmp_path, limits=replace(LIMITS, streams=10)) as service:
        for name in names:
            ask(service, images(2), name)
    assert len(list((tmp_path / "streams").iterdir())) == len(names)
    with serving(tmp_path, limits=replace(LIMITS, streams=10)) as service:
        assert sorted(status.name for status in service.streams()) == sorted(names)


def test_a_damaged_snapshot_falls_back_to_the_one_before(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
        first = service.snapshot("cam")
        before = service.state("cam")
        ask(service, images(8, 1))
        last = service.snapshot("cam")
    (tmp_path / "streams" / "cam" / f"{last.name}.safetensors").write_bytes(b"torn")
    with serving(tmp_path) as service:
        assert same(service.state("cam"), before)
        assert first.name in [info.name for info in service.stream("cam").snapshots]


def test_a_replay_of_the_audit_equals_every_snapshot(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    rules = parse_rules("entropy < 100: fallback")
    limits = replace(LIMITS, save_every=2)
    with serving(state, limits=limits, record=record, guard=rules) as service:
        for i in range(5):
            ask(service, images(64, i), id=f"r{i}")
        ask(service, images(1))
        service.set_mode("cam", "shadow")
        ask(service, images(64, 6))
        service.promote("cam")
        ask(service, images(64, 7))
        service.set_mode("cam", "adapt")
        service.rollback("cam", service.stream("cam").snapshots[0].name)
        service.evict("cam")
        ask(service, images(64, 8))
        service.reset("cam")
        ask(service, images(64, 9))
    found = replay(state, record, "cam", classifier(), tent, guard=rules)
    assert found.different == ()
    assert len(found.compared) >= 6
    assert found.learner.adapter.steps == 1
    assert any(line.alarm for line in read_audit(state / "streams" / "cam" / "audit.jsonl"))


def test_a_stream_that_answered_while_it_learnt_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    limits = Limits(wait=0.0, learn_share=0.25, save_every=3, batch=8, queue=10_000)
    with serving(state, limits=limits, record=record) as service, ThreadPoolExecutor(6) as clients:
        replies = list(clients.map(lambda i: ask(service, images(1 + i % 5, i), id=f"r{i}"), range(120)))
        service.snapshot("cam")
        status = service.stream("cam")
    assert status.answered == sum(1 + i % 5 for i in range(120))
    assert {reply.logits.shape[1] for reply in replies} == {10}
    lines = list(read_stream(state / "streams" / "cam"))
    told = [name for line in lines for name, _ in line.requests]
    assert sorted(told) == sorted(f"r{i}" for i in range(120))
    found = replay(state, record, "cam", classifier(), tent)
    assert found.different == () and len(found.compared) >= 3
    assert found.learnt == status.learnt


def test_an_audit_that_grows_too_large_loses_its_oldest_lines_and_is_still_replayed(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    limits = replace(LIMITS, save_every=2, keep=2, audit=0.004)
    folder = state / "streams" / "cam"
    with serving(state, limits=limits, record=record) as service:
        ask(service, images(8), id="r0")
        pinned = service.snapshot("cam", pin=True)
        for i in range(1, 20):
            ask(service, images(8, i), id=f"r{i}")
            service.state("cam")
    with serving(state, limits=limits, record=record) as service:
        for i in range(20, 30):
            ask(service, images(8, i), id=f"r{i}")
            service.state("cam")
        service.rollback("cam", pinned.name)
        ask(service, images(8, 30), id="r30")
    lines = list(read_stream(folder))
    size = sum(path.stat().st_size for path in folder.glob("audit*.jsonl"))
    # A part is a quarter of what is kept, and the lines since the oldest snapshot come on top.
    assert lines[0].n > 10 and size < 2 * 4000
    assert [line.n for line in lines] == list(range(lines[0].n, lines[-1].n + 1))
    found = replay(state, record, "cam", classifier(), tent)
    assert found.different == () and len(found.compared) >= 1
    assert found.learner.adapter.steps == 2
    for path in folder.glob("0*.safetensors"):
        path.unlink()
    with pytest.raises(BadData, match="no snapshot to start from is left"):
        replay(state, record, "cam", classifier(), tent)
