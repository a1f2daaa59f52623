"""What an operator does to a stream: rollbacks, uploads and removals, and what is said when the disk is full."""

from __future__ import annotations

import errno
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import ctta
from ctta._adapter.checkpoint import serialised
from ctta.errors import CttaError, NoGoodSnapshot, NotACheckpoint, NotSaved, ServiceClosing, UnknownLane, WrongMode
from ctta.guard import parse_rules
from ctta.serve.audit import read_audit
from ctta.serve.folders import Folders
from ctta.serve.types import Ask, Mode
from serve.engine import LIMITS, WAIT, Held, ask, classifier, held_learning, images, same, serving, tent


def full(path: object, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


@pytest.mark.parametrize("mode", ["frozen", "shadow", "adapt"])
def test_a_rollback_changes_what_was_learnt_and_not_the_mode(mode: Mode) -> None:
    with serving() as service:
        ask(service, images(8))
        adapted = service.snapshot("cam")
        before = service.state("cam")
        service.set_mode("cam", "shadow")
        shadowed = service.snapshot("cam")
        ask(service, images(8, 1))
        service.set_mode("cam", mode)
        for name in (adapted.name, shadowed.name):
            service.rollback("cam", name)
            assert service.stream("cam").mode == mode
            assert same(service.state("cam"), before)
        assert ask(service, images(8, 2)).learnt == (mode != "frozen")


def test_a_rollback_without_a_name_goes_to_the_newest_good_snapshot_with_fewer_steps() -> None:
    with serving() as service:
        states = []
        for i in range(3):
            ask(service, images(8, i))
            service.snapshot("cam")
            states.append(service.state("cam"))
        service.set_mode("cam", "frozen")  # saves the present state once more, marked as good
        for steps in (2, 1):
            assert service.rollback("cam").steps == steps
            assert same(service.state("cam"), states[steps - 1])
        with pytest.raises(NoGoodSnapshot, match=r"fewer steps than stream 'cam' has now \(1\)"):
            service.rollback("cam")
        assert same(service.state("cam"), states[0])


def test_a_snapshot_that_was_not_good_is_no_aim_of_a_rollback_without_a_name() -> None:
    rules = parse_rules("entropy < 100: freeze")
    with serving(guard=rules) as service:
        ask(service, images(8))
        good = service.snapshot("cam")
        while service.stream("cam").guard == "ok":
            ask(service, images(64, 1))
            service.state("cam")
        assert not service.snapshot("cam").good
        assert service.rollback("cam").name == good.name


def test_the_health_of_a_snapshot_is_that_of_its_state() -> None:
    with serving() as service:
        ask(service, images(8))
        first = service.snapshot("cam")
        ask(service, images(8, 1))
        second = service.snapshot("cam")
        assert first.health != second.health
        service.rollback("cam", first.name)
        assert service.stream("cam").snapshots[-1].health == first.health
        service.reset("cam")
        assert service.stream("cam").snapshots[-1].health == {}
        assert service.stream("cam").entropy is None


def test_a_restarted_stream_remembers_the_health_of_its_state(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
    with serving(tmp_path) as service:
        health = service.stream("cam").snapshots[-1].health
        assert health and service.snapshot("cam").health == health


def test_a_damaged_snapshot_is_named_without_its_path(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
        name = service.snapshot("cam").name
        before = service.state("cam")
        (tmp_path / "streams" / "cam" / f"{name}.safetensors").write_bytes(b"torn")
        with pytest.raises(NotACheckpoint, match=f"Snapshot {name} is damaged") as caught:
            service.rollback("cam", name)
        assert str(tmp_path) not in str(caught.value)
        assert same(service.state("cam"), before)


def test_an_operation_that_cannot_be_saved_says_that_it_is_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
        name = service.snapshot("cam").name
        data = service.state("cam")
        with monkeypatch.context() as patch:
            patch.setattr("ctta.serve.history.write_atomically", full)
            for do, what in (
                (lambda: service.set_mode("cam", "shadow"), "The new mode"),
                (lambda: service.promote("cam"), "The promotion"),
                (lambda: service.put_state("cam", data), "The uploaded state"),
                (lambda: service.rollback("cam", name), "The rollback"),
                (lambda: service.reset("cam"), "The reset"),
            ):
                with pytest.raises(NotSaved, match=f"{what} of stream 'cam' is in effect") as caught:
                    do()
                assert "(No space left on device)" in str(caught.value)
                assert str(tmp_path) not in str(caught.value)
            status = service.stream("cam")
            assert (status.mode, status.steps, status.unsaved) == ("shadow", 0, 5)
            assert status.last_snapshot == name
    with serving(tmp_path) as service:  # there was space again when it closed
        assert service.stream("cam").mode == "shadow"


def test_lines_and_images_that_cannot_be_written_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "state", record=tmp_path / "record") as service:
        ask(service, images(8))
        data = service.state("cam")
        with monkeypatch.context() as patch:
            patch.setattr("ctta.serve.audit.os.write", lambda file, text: 0)
            patch.setattr("ctta.serve.audit._batch_file", lambda record, n: tmp_path / "missing" / "file")
            patch.setattr("ctta.serve.audit.write_atomically", full)
            ask(service, images(8, 1))
            service.put_state("cam", data)
        status = service.stream("cam")
        assert (status.unaudited, status.unrecorded) == (2, 2)


def test_every_operation_is_logged_with_its_stream(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ctta"), serving() as service:
        ask(service, images(8), "door 7")
        name = service.snapshot("door 7").name
        service.pin("door 7", name)
        service.set_mode("door 7", "frozen")
        service.rollback("door 7", name)
        service.remove("door 7")
    said = [text for text in caplog.messages if text.startswith("stream door 7: ")]
    assert [text.split()[3] for text in said] == ["snapshot", "mode", "rollback", "removed"]
    assert f"rollback from 1 steps to snapshot {name}" in said[2]


def test_a_refused_state_creates_no_stream_and_names_no_path_of_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        for data in (b"nonsense", serialised(ctta.BN(classifier())), serialised(tent(classifier()))[:-1]):
            with pytest.raises(CttaError) as caught:
                service.put_state("new", data)
            assert "/" not in str(caught.value)
        assert service.streams() == []
        assert not (tmp_path / "streams" / "new").exists()


def test_a_removed_stream_leaves_nothing_and_starts_again_from_the_source(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    with serving(state, record=record, limits=replace(LIMITS, streams=2)) as service:
        ask(service, images(8), "a", id="one")
        ask(service, images(8), "b", id="one")
        service.snapshot("a", pin=True)
        service.snapshot("b")  # after its batch was learnt from, and its images recorded
        events = service.subscribe("a")
        service.remove("a")
        assert [status.name for status in service.streams()] == ["b"]
        while (event := events.get(timeout=WAIT))["do"] != "remove":
            pass
        assert event["stream"] == "a"
        service.unsubscribe("a", events)
        assert [path.name for path in (state / "streams").iterdir()] == ["b"]
        assert [path.name for path in record.iterdir()] == ["b"]
        with pytest.raises(UnknownLane):
            service.remove("a")
        again = ask(service, images(8), "a", id="one")
        assert (again.steps, again.learnt) == (0, True)
    with serving(state) as service:
        assert [(status.name, status.steps) for status in service.streams()] == [("a", 1), ("b", 1)]


def test_a_stream_that_is_removed_under_load_answers_what_it_accepted() -> None:
    with held_learning() as make, serving(make=make) as service, ThreadPoolExecutor(1) as operator:
        ask(service, images(8))
        assert Held.learning.wait(WAIT)
        waiting = [service.submit(Ask("cam", images(8, i))) for i in range(3)]
        lane = service._lanes["cam"]
        removed = operator.submit(service.remove, "cam")
        with lane._inbox._changed:
            assert lane._inbox._changed.wait_for(lambda: lane._inbox._closing, WAIT)
        with pytest.raises(ServiceClosing, match="Stream 'cam' is closing"):
            service.submit(Ask("cam", images(8)))
        with pytest.raises(WrongMode, match="being restarted or removed"):
            service.remove("cam")
        Held.gate.set()
        assert [future.result(WAIT).logits.shape for future in waiting] == [(8, 10)] * 3
        removed.result(WAIT)
        assert ask(service, images(8)).steps == 0


def test_what_a_killed_process_had_begun_to_remove_is_removed_by_the_next(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8), "a")
        ask(service, images(8), "b")
    streams = tmp_path / "streams"
    (streams / ".removed-x").mkdir()
    (streams / "a").rename(streams / ".removed-x" / "a")
    with serving(tmp_path) as service:
        assert [status.name for status in service.streams()] == ["b"]
    assert [path.name for path in streams.iterdir()] == ["b"]


def test_a_stream_whose_folder_cannot_be_removed_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as service:
        ask(service, images(8))
        service.snapshot("cam")

        def refuse(self: Folders, stream: str) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr(Folders, "remove", refuse)
            with pytest.raises(PermissionError):
                service.remove("cam")
        assert ask(service, images(8, 1)).steps == 1


def test_in_shadow_a_download_is_the_champion_and_an_upload_becomes_the_challenger() -> None:
    other = tent(classifier())
    for i in range(3):
        other.step(images(8, 10 + i))
    with serving() as service:
        ask(service, images(8))
        service.set_mode("cam", "shadow")
        champion = service.state("cam")
        service.put_state("cam", serialised(other))
        assert same(service.state("cam"), champion)
        reply = ask(service, images(8, 1), learn=False)
        assert (reply.steps, service.stream("cam").steps) == (1, 3)  # the champion's; the challenger's
        service.promote("cam")
        assert same(service.state("cam"), serialised(other))


def test_only_batches_that_complete_the_window_count_as_learnt() -> None:
    with serving(make=lambda source: ctta.Tent(source, window=4)) as service:
        replies = [ask(service, images(1, i)) for i in range(8)]
        service.state("cam")
        assert [reply.learnt for reply in replies] == [False, False, False, True] * 2
        assert service.stream("cam").learnt == 2


def test_batches_that_the_guard_holds_back_do_not_count_as_learnt(tmp_path: Path) -> None:
    rules = parse_rules("entropy < 100: freeze")
    with serving(tmp_path, guard=rules) as service:
        replies = [ask(service, images(64, i)) for i in range(8)]
        service.state("cam")
        learnt = service.stream("cam").learnt
    held = [line.guard for line in read_audit(tmp_path / "streams" / "cam" / "audit.jsonl") if line.do == "learn"]
    assert 0 < learnt < len(held) == 8
    assert learnt == sum(reply.learnt for reply in replies)


def test_what_is_answered_while_the_stream_learns_says_whether_it_completes_the_window() -> None:
    limits = replace(LIMITS, learn_share=0.5, batch=8)
    with held_learning(window=4) as make, serving(make=make, limits=limits) as service:
        assert ask(service, images(4)).learnt
        assert Held.learning.wait(WAIT)
        assert [ask(service, images(2, i)).learnt for i in range(1, 4)] == [False, True, False]
        Held.gate.set()
        service.state("cam")
