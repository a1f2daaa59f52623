"""Slow disks, hung learners, lost files and odd clients: a stream answers, and loses nothing that it saved."""

from __future__ import annotations

import copy
import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ctta
from ctta._system.files import write_atomically
from ctta.errors import DamagedStream, ImageShape, LearnerStopped, QueueFull, WrongMode
from ctta.serve import history, index
from ctta.serve.audit import Audit, Line, read_stream
from ctta.serve.double import Double
from ctta.serve.learner import Learner
from ctta.serve.replay import replay
from ctta.serve.shapes import Shapes
from ctta.serve.types import Ask, Limits
from ctta.testing.compare import difference
from ctta.testing.families import own_buffers
from ctta.testing.models import bn_cnn
from running import wait_for
from serve.engine import LIMITS, WAIT, Held, ask, classifier, held_learning, images, same, serving

#: The default share, with which a stand-in answers while the stream learns.
SHARED = Limits(wait=0.0, queue=16, batch=8)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("kind", ["probes", "single images", "one id"])
def test_a_learner_that_hangs_costs_a_bounded_number_of_images(kind: str, window: int | None) -> None:
    asks: dict[str, Callable[[int], Ask]] = {
        "probes": lambda i: Ask("cam", images(8, i), learn=False),
        "single images": lambda i: Ask("cam", images(1, i)),
        "one id": lambda i: Ask("cam", images(8, i), id="r"),
    }
    with held_learning(window) as make, serving(make=make, limits=SHARED) as service:
        ask(service, images(8), id="r")
        assert Held.learning.wait(WAIT)
        for i in range(60):
            with suppress(QueueFull):
                service.submit(asks[kind](i))
        lane = service._lanes["cam"]
        wait_for(lambda: lane._lessons.crowded or lane._inbox.images == 0 or lane._lessons.full)
        held = sum(len(images) for images, _ in lane._lessons.unseen())
        # What waits to be learnt or seen, and what one batch adds to it after the last look.
        assert held <= SHARED.batch + SHARED.queue + SHARED.batch
        Held.gate.set()


def slow_disk(monkeypatch: pytest.MonkeyPatch, module: Any, gate: threading.Event) -> threading.Event:
    """Let a module's writes wait for a gate, and return what is set when one begins."""
    began = threading.Event()

    def write(path: Path, data: bytes) -> None:
        began.set()
        assert gate.wait(WAIT)
        write_atomically(path, data)

    monkeypatch.setattr(module, "write_atomically", write)
    return began


@pytest.mark.parametrize("module", [history, index])
def test_no_reply_waits_for_the_disk(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    with serving() as service, ThreadPoolExecutor(2) as pool:
        ask(service, images(8))
        service.snapshot("cam")
        began = slow_disk(monkeypatch, module, gate)
        try:
            operation = pool.submit(service.reset, "cam")
            assert began.wait(WAIT)
            assert not ask(service, images(8, 1), learn=False).learnt
            assert ask(service, images(8, 2)).learnt
            assert not operation.done()  # it returns when it is saved
        finally:
            gate.set()
        operation.result(WAIT)


def test_learning_is_saved_although_a_power_cut_took_lines_that_are_older_than_a_snapshot(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        for i in range(6):
            ask(service, images(8, i))
    audit = tmp_path / "streams" / "cam" / "audit.jsonl"
    audit.write_bytes(b"".join(audit.read_bytes().splitlines(keepends=True)[:2]))
    with serving(tmp_path) as service:
        assert service.stream("cam").steps == 6
        for i in range(3):
            ask(service, images(8, 10 + i))
        before = service.state("cam")
        service.evict("cam")
        assert same(service.state("cam"), before) and service.stream("cam").steps == 9
    with serving(tmp_path) as service:
        assert same(service.state("cam"), before)
        names = [info.name for info in service.stream("cam").snapshots]
        assert names == sorted(set(names))


def test_a_list_of_snapshots_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
        ask(service, images(8), "other")
        service.snapshot("cam")
    listed = tmp_path / "streams" / "cam" / "snapshots.json"
    content = json.loads(listed.read_bytes())
    content["snapshots"][0]["of_a_newer_version"] = 1
    listed.write_text(json.dumps(content))
    before = {file.name: file.read_bytes() for file in listed.parent.iterdir()}
    with serving(tmp_path) as service:
        assert [status.name for status in service.streams()] == ["other"]
        with pytest.raises(DamagedStream, match=r"snapshots\.json in the folder cam"):
            service.submit(Ask("cam", images(8)))
        assert ask(service, images(8), "other").learnt
        assert service.damaged() == 1
        assert {file.name: file.read_bytes() for file in listed.parent.iterdir()} == before
        del content["snapshots"][0]["of_a_newer_version"]
        listed.write_text(json.dumps(content))
        assert service.damaged() == 0
        assert ask(service, images(8)).learnt


def test_no_file_stays_that_the_list_of_snapshots_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "streams" / "cam"

    def files() -> list[str]:
        return sorted(file.name for file in folder.glob("*.safetensors"))

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving(tmp_path, limits=replace(LIMITS, save_every=1, keep=2)) as service:
        ask(service, images(8))
        service.snapshot("cam")
        kept = files()
        with monkeypatch.context() as patch:
            patch.setattr(index, "write_atomically", full)
            for i in range(4):
                ask(service, images(8, i))
                service.state("cam")
                service._lanes["cam"]._history.settle()
            assert files() == kept
    kept = files()
    (folder / "00000001.safetensors").write_bytes(b"of a process that was killed before it could delete it")
    with serving(tmp_path) as service:
        assert files() == kept


def test_an_older_list_of_snapshots_that_someone_restored_costs_no_newer_snapshot(tmp_path: Path) -> None:
    listed = tmp_path / "streams" / "cam" / "snapshots.json"
    with serving(tmp_path) as service:
        ask(service, images(8))
        service.snapshot("cam")
        older = listed.read_bytes()
        ask(service, images(8, 1))
        newest = service.snapshot("cam").name
    newer = listed.read_bytes()
    listed.write_bytes(older)
    with serving(tmp_path) as service:
        assert service.stream("cam").steps == 1
    assert (listed.parent / f"{newest}.safetensors").exists()
    listed.write_bytes(newer)
    with serving(tmp_path) as service:
        assert service.stream("cam").steps == 2


def test_a_shape_that_is_known_does_not_wait_for_one_that_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, trying = threading.Event(), threading.Event()
    shapes = Shapes(classifier())
    shapes.check((3, 16, 16))
    tried = shapes._try

    def slow(shape: tuple[int, ...]) -> str | None:
        trying.set()
        assert gate.wait(WAIT)
        return tried(shape)

    monkeypatch.setattr(shapes, "_try", slow)
    with ThreadPoolExecutor(2) as pool:
        new = pool.submit(shapes.check, (3, 20, 20))
        assert trying.wait(WAIT)
        pool.submit(shapes.check, (3, 16, 16)).result(WAIT)
        assert not new.done()
        gate.set()
        new.result(WAIT)


@pytest.mark.parametrize("build", [own_buffers, bn_cnn])
def test_trying_a_shape_leaves_the_source_as_it_is(build: Callable[[], nn.Module]) -> None:
    source = ctta.Classifier(build().train())
    before = copy.deepcopy(source.state_dict())
    Shapes(source).check((3, 20, 20))
    assert difference(before, source.state_dict()) is None
    assert source.training


def test_a_network_in_double_precision_accepts_the_shapes_that_it_should() -> None:
    shapes = Shapes(ctta.Classifier(bn_cnn().double()))
    shapes.check((3, 16, 16))
    with pytest.raises(ImageShape, match="4 channels"):
        shapes.check((4, 16, 16))


def test_writing_a_file_does_not_touch_the_umask_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("it is the whole process's"))
        write_atomically(tmp_path / "file", b"content")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_requests_that_only_ask_displace_no_id_that_was_learnt_from() -> None:
    with serving(limits=replace(LIMITS, remembered=5)) as service:
        assert ask(service, images(4), id="one").learnt
        for i in range(20):
            ask(service, images(1), id=f"probe {i}", learn=False)
        assert not ask(service, images(4), id="one").learnt
        # One that asks with an id that is offered later does not own it.
        ask(service, images(1, 9), id="later", learn=False)
        assert service.labels("cam", {"later": [0]}).labelled == 1
        assert ask(service, images(4, 3), id="later").learnt
        report = service.labels("cam", {"later": [0, 1, 2, 3]})
        assert (report.unknown, report.labelled) == ((), 4)


def test_an_operation_fails_with_the_stream_that_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with held_learning() as make, serving(make=make, limits=SHARED) as service, ThreadPoolExecutor(1) as pool:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        ask(service, images(8, 1))  # by the stand-in; it is to be learnt from
        lane = service._lanes["cam"]
        operation = pool.submit(service.snapshot, "cam")
        wait_for(lambda: lane._inbox.has_operation)
        monkeypatch.setattr(lane._keeper, "changed", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("boom")))
        Held.gate.set()
        with pytest.raises(LearnerStopped, match="boom"):
            operation.result(WAIT)


def test_a_stream_that_stopped_says_so_and_restarts_from_its_newest_snapshot(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
        saved = service.snapshot("cam")
        before = service.state("cam")
        with pytest.raises(WrongMode, match="is running"):
            service.restart("cam")
        service._lanes["cam"]._inbox.stop(RuntimeError("out of luck"))
        assert service.stream("cam").stopped == "RuntimeError('out of luck')" and not service.ready()
        service.restart("cam")
        assert service.stream("cam").stopped is None and service.ready()
        assert service.stream("cam").last_snapshot == saved.name
        assert same(service.state("cam"), before) and ask(service, images(8, 1)).learnt


def test_a_restart_waits_for_what_is_being_saved_and_keeps_subscribers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    with serving(tmp_path) as service, ThreadPoolExecutor(2) as pool:
        ask(service, images(8))
        events = service.subscribe("cam")
        with monkeypatch.context() as patch:
            began = slow_disk(patch, index, gate)
            snapshot = pool.submit(service.snapshot, "cam")
            assert began.wait(WAIT)
            service._lanes["cam"]._inbox.stop(RuntimeError("out of luck"))
            restart = pool.submit(service.restart, "cam")
            assert wait([restart], 0.3).not_done
            with pytest.raises(WrongMode, match="being restarted or removed"):
                service.remove("cam")
            gate.set()
            restart.result(WAIT)
        name = snapshot.result(WAIT).name
        assert service.stream("cam").last_snapshot >= name
        assert name in [info.name for info in service.stream("cam").snapshots]
        assert (tmp_path / "streams" / "cam" / f"{name}.safetensors").exists()
        ask(service, images(8, 1))
        wait_for(lambda: "resume" in [event["do"] for event in list(events.queue)])


@pytest.mark.parametrize("limits", [LIMITS, SHARED])
def test_images_of_another_size_begin_a_new_window(limits: Limits) -> None:
    with serving(make=lambda source: ctta.Tent(source, lr=0.01, window=4), limits=limits) as service:
        ask(service, torch.rand(1, 3, 24, 24))
        ask(service, images(2), learn=False)  # a probe of another size leaves the window
        assert service._lanes["cam"]._keeper.awake().adapter.inner._window.images.shape[-1] == 24
        learnt = [ask(service, images(1, i)).learnt for i in range(4)]
        assert learnt == [False, False, False, True]
        # The image that would have completed the window begins another one.
        for i in range(3):
            ask(service, images(1, i))
        assert not ask(service, torch.rand(1, 3, 20, 20)).learnt


def test_a_batch_that_fails_leaves_the_window_and_the_replay_equals_the_service(tmp_path: Path) -> None:
    def rotta(source: ctta.Classifier) -> ctta.Adapter:
        return ctta.RoTTA(source, window=4, memory_size=8, update_every=4)

    with serving(tmp_path / "state", rotta, record=tmp_path / "record") as service:
        ask(service, images(4))
        assert not ask(service, torch.rand(4, 3, 20, 20)).learnt  # its memory refuses them
        ask(service, images(1, 1))
        service.snapshot("cam")
    found = replay(tmp_path / "state", tmp_path / "record", "cam", classifier(), rotta)
    assert found.compared and not found.different


def test_a_method_that_remembers_images_of_one_size_answers_others() -> None:
    with serving(make=ctta.RoTTA) as service:
        assert ask(service, torch.rand(8, 3, 24, 24)).learnt
        other = ask(service, images(8))
        assert other.logits.shape == (8, 10) and not other.learnt
        wait_for(lambda: service.stream("cam").failures == 1)
        assert service.stream("cam").stopped is None


@pytest.mark.parametrize("method", [ctta.Trio, ctta.Tent])
def test_the_stand_in_falls_back_as_the_guard_does(method: type[ctta.Adapter]) -> None:
    options = {} if method is ctta.Trio else {"statistics": "auto"}
    guarded = ctta.Guarded(method(classifier(), **options), rules="entropy < 100: fallback", patience=150.0, cooldown=2)
    learner, double = Learner(guarded), Double()
    for i in range(300):
        learner.learn(images(2, i))
        if guarded.watch.falls_back() and guarded.inner.recent_classes is not None:
            break
    assert guarded.watch.falls_back()
    double.follow(learner)
    x = images(8, 999)
    assert torch.equal(double.predict(x), learner.predict(x))


def test_an_audit_opens_its_file_again_after_the_system_refused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Audit(tmp_path, most_bytes=400)
    line = Line(n=1, do="learn", time=0.0, mode="adapt", steps=1)
    while audit._size <= 100:
        audit.write(replace(line, n=audit.next()))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Too many"):
        patch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.EMFILE, "Too many open files")))
        audit.write(replace(line, n=audit.next()))
    audit.write(replace(line, n=audit.next()))
    assert json.loads((tmp_path / "audit.jsonl").read_bytes())["n"] == audit.last
    audit.close()


def test_lines_of_a_newer_version_do_not_keep_a_stream_from_starting(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8), id="a")
    audit = tmp_path / "streams" / "cam" / "audit.jsonl"
    newest = {"n": 70, "do": "learn", "of_a_newer_version": 1}
    audit.write_bytes(audit.read_bytes() + json.dumps(newest).encode() + b"\n")
    with serving(tmp_path) as service:
        assert ask(service, images(8)).learnt
        assert int(service.snapshot("cam").name) > 70


@pytest.mark.parametrize("name", ["audit-backup.jsonl", "audit-copy-00000001.jsonl", "audit-²³.jsonl"])
def test_a_copy_of_the_audit_beside_it_is_no_part_of_it(tmp_path: Path, name: str) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
    audit = tmp_path / "streams" / "cam" / "audit.jsonl"
    lines = list(read_stream(audit.parent))
    shutil.copy(audit, audit.with_name(name))
    assert list(read_stream(audit.parent)) == lines
    with serving(tmp_path) as service:
        assert ask(service, images(8)).learnt


def test_what_is_removed_first_is_what_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    with serving(state, record=record) as service:
        ask(service, images(8))
        service.state("cam")
        removed: list[Path] = []

        def refuse(folder: Path) -> None:
            removed.append(folder)
            raise OSError(errno.EIO, "killed here")

        monkeypatch.setattr("ctta.serve.folders._remove", refuse)
        with pytest.raises(OSError, match="killed here"):
            service.remove("cam")
        assert removed == [record / "cam"]
