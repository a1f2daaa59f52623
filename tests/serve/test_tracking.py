"""The service tracks every stream as a run, and no request waits for it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from ctta.serve.audit import STREAM_FILE, read_audit
from ctta.serve.types import Ask
from ctta.track import RunName, Target
from running import wait_for
from serve.engine import WAIT, images, serving

BATCHES = 5


class Notes:
    """A tracker that keeps what it is told."""

    def __init__(self, run: RunName) -> None:
        self.run = run
        self.facts: dict[str, object] = {}
        self.steps: dict[int, dict[str, float]] = {}
        self.closed: bool | None = None

    def describe(self, facts: Any) -> None:
        self.facts |= facts

    def log(self, step: int, numbers: Any) -> None:
        self.steps[step] = dict(numbers)

    def conclude(self, name: str, value: float, step: int) -> None:
        raise AssertionError("a stream has no end at which a result is known")

    def close(self, *, finished: bool) -> None:
        self.closed = finished


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[Notes]:
    """The trackers that a service opens, in place of those of TensorBoard."""
    opened: list[Notes] = []

    def open_run(directory: Path, run: RunName) -> Notes:
        opened.append(Notes(run))
        return opened[-1]

    monkeypatch.setattr("ctta.track.tensorboard.open_run", open_run)
    return opened


@pytest.fixture
def track(tmp_path: Path) -> list[Target]:
    pytest.importorskip("tensorboard")
    return [Target("tensorboard", tmp_path / "tracked")]


def ask(service: Any, stream: str, count: int = BATCHES) -> None:
    for seed in range(count):
        service.submit(Ask(stream, images(4, seed))).result(WAIT)


def test_every_batch_of_a_stream_is_a_step_with_the_numbers_of_the_audit(
    tmp_path: Path, notes: list[Notes], track: list[Target]
) -> None:
    with serving(tmp_path / "state", track=track) as service:
        ask(service, "left camera")
        ask(service, "right", 1)
    first, second = notes
    assert first.closed is True and second.closed is True
    assert first.facts["stream"] == "left camera" and first.facts["method"] == "tent"
    assert first.run.group == "ctta-serve-tiny" and first.run.name.startswith("left%20camera_")
    lines = {line.n: line for line in read_audit(tmp_path / "state" / "streams" / "left%20camera" / STREAM_FILE)}
    assert first.steps.keys() == lines.keys()
    learnt = [line for line in lines.values() if line.do == "learn"]
    assert len(learnt) == BATCHES
    for number, line in enumerate(learnt, start=1):
        told = first.steps[line.n]
        assert {name: told[f"stream/{name}"] for name in line.signals} == line.signals
        assert told["stream/steps"] == number and told["stream/images"] == 4 and told["stream/alarm"] == 0


def test_after_a_restart_a_stream_continues_with_the_next_step(
    tmp_path: Path, notes: list[Notes], track: list[Target]
) -> None:
    for _ in range(2):
        with serving(tmp_path / "state", track=track) as service:
            ask(service, "a")
    before, after = notes
    assert before.run.key != after.run.key and before.run.name != after.run.name
    assert not before.steps.keys() & after.steps.keys() and min(after.steps) == max(before.steps) + 1


def test_no_answer_waits_for_a_tracker_that_is_stuck(
    tmp_path: Path, track: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, release = threading.Event(), threading.Event()

    def open_run(directory: Path, run: RunName) -> Notes:
        stuck.set()
        assert release.wait(WAIT)
        return Notes(run)

    monkeypatch.setattr("ctta.track.tensorboard.open_run", open_run)
    with serving(tmp_path / "state", track=track) as service:
        ask(service, "a", 1)
        assert stuck.wait(WAIT)
        ask(service, "a")
        release.set()


def test_a_tracker_that_cannot_be_opened_is_logged_and_the_stream_goes_on(
    tmp_path: Path, track: list[Target], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def open_run(directory: Path, run: RunName) -> Notes:
        raise OSError("No space left on device")

    monkeypatch.setattr("ctta.track.tensorboard.open_run", open_run)
    with caplog.at_level(logging.ERROR, logger="ctta"), serving(tmp_path / "state", track=track) as service:
        ask(service, "a")
        wait_for(lambda: service.stream("a").learnt == BATCHES)  # after the last answer
    assert [entry.message for entry in caplog.records] == ["stream a cannot be tracked"]


def test_the_events_of_a_stream_are_written_to_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracked = tmp_path / "tracked"
    with serving(tmp_path / "state", track=[Target("tensorboard", tracked)]) as service:
        ask(service, "a")
    (run,) = tracked.iterdir()
    found = accumulator.EventAccumulator(str(run)).Reload()
    lines = list(read_audit(tmp_path / "state" / "streams" / "a" / STREAM_FILE))
    shown = [(event.step, event.value) for event in found.Scalars("stream/entropy")]
    assert shown == [(line.n, pytest.approx(line.signals["entropy"])) for line in lines if line.do == "learn"]


@pytest.mark.track
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_streams_are_tracked_with_the_real_libraries(tmp_path: Path) -> None:
    from track.wandb_files import exit_codes, history  # noqa: PLC0415

    targets = [Target("mlflow", tmp_path / "mlflow"), Target("wandb", tmp_path / "wandb")]
    with serving(tmp_path / "state", track=targets) as service:
        ask(service, "a")
        ask(service, "b")
    from mlflow import MlflowClient  # noqa: PLC0415, telemetry is off once the sink has been imported

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("ctta-serve-tiny").experiment_id])
    assert sorted(run.data.params["stream"] for run in runs) == ["a", "b"]
    files = list((tmp_path / "wandb").glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2
    wait_for(lambda: all(map(exit_codes, files)))  # another process writes them
    by_key = {run.data.tags["ctta.key"]: run for run in runs}
    assert len({file.stem for file in files}) == 2 and len(by_key) == 2
    for run in runs:
        lines = list(read_audit(tmp_path / "state" / "streams" / run.data.params["stream"] / STREAM_FILE))
        expected = [(line.n, line.signals["entropy"]) for line in lines if line.do == "learn"]
        assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "stream/entropy")] == expected
    rows = {file.stem: [row for row in history(file) if "stream/entropy" in row] for file in files}
    assert sorted(map(len, rows.values())) == [BATCHES, BATCHES]
