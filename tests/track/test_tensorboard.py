"""TensorBoard: the events of a run are the numbers of its record and log, once each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctta.bench.jobs import execute
from ctta.bench.record import Record
from ctta.errors import MissingExtra
from ctta.track import Target
from jobs import change_job
from running import wait_for
from track.tracking import JOB, NUMBERS, Interrupted, interrupt_at, logged, results

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
)


def check(events: Path, record: Record, runs: Path) -> None:
    """Every number of the log and the record is there once, as a 32-bit float."""
    found = accumulator.EventAccumulator(str(events), size_guidance={accumulator.SCALARS: 0}).Reload()
    scalars = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    expected = logged(record, runs) | results(record, runs)
    assert scalars == {tag: [(step, float(np.float32(value))) for step, value in expected[tag]] for tag in expected}
    (text,) = found.Tensors("run/text_summary")
    table = text.tensor_proto.string_val[0].decode()
    rows = dict(line[2:-2].split(" | ") for line in table.splitlines()[2:])
    assert rows["address"] == record.address
    assert rows["command"] == record.command.replace("|", "/")
    for name, value in record.settings.items():
        assert rows[f"settings.{name}"] == str(value)


def shown(run: Path) -> list[int]:
    """The steps whose error can be read now."""
    found = accumulator.EventAccumulator(str(run)).Reload()
    return [e.step for e in found.Scalars("step/error")] if "step/error" in found.Tags()["scalars"] else []


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events"


@pytest.fixture
def track(events: Path) -> tuple[Target, ...]:
    return (Target("tensorboard", events),)


def test_the_events_of_a_run_are_its_numbers(tmp_path: Path, events: Path, track: Any) -> None:
    record = execute(change_job(JOB, track=track, settings={"alpha_min": 0.98}, command="ctta run | x"), tmp_path)
    (run,) = events.iterdir()
    assert run.name == f"dmse_alpha_min=0.98_seed=0_{record.address[:8]}"
    check(run, record, tmp_path)
    lines = (tmp_path / record.address / "steps.jsonl").read_text().splitlines()
    assert set(json.loads(lines[0])) >= NUMBERS


def test_events_are_written_while_the_run_goes_on(tmp_path: Path, events: Path, track: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("ctta.track.tensorboard._FLUSH_SECONDS", 0)
    seen = []

    def look(adapter: object, steps: int) -> Any:
        def progress(batch: object, log: dict[str, Any]) -> None:
            if log["index"] == 5:
                # Another thread writes them.
                wait_for(lambda: shown(next(events.iterdir())) == list(range(6)))
                seen.append(log["index"])

        return progress

    execute(change_job(JOB, track=track), tmp_path, progress=look)
    assert seen == [5]


def test_an_interrupted_run_has_every_step_once(tmp_path: Path, events: Path, track: Any) -> None:
    with pytest.raises(Interrupted):
        execute(change_job(JOB, track=track), tmp_path, save_every=0.0, progress=interrupt_at(4))
    (run,) = events.iterdir()
    assert shown(run) == [0, 1, 2, 3, 4]
    record = execute(change_job(JOB, track=track), tmp_path)
    check(run, record, tmp_path)


def test_a_run_that_was_done_before_has_its_events_too_and_asking_again_doubles_nothing(
    tmp_path: Path, events: Path, track: Any
) -> None:
    job = change_job(JOB, method="tent")
    record = execute(job, tmp_path)
    for _ in range(2):
        assert execute(change_job(job, track=track), tmp_path) == record
    (run,) = events.iterdir()
    check(run, record, tmp_path)


def test_a_run_that_is_repeated_to_keep_its_model_has_every_step_once(tmp_path: Path, events: Path, track: Any) -> None:
    job = change_job(JOB, method="bn")
    record = execute(job, tmp_path)
    execute(change_job(job, track=track, keep=True), tmp_path)
    (run,) = events.iterdir()
    check(run, record, tmp_path)


def test_a_run_without_learning_has_no_loss(tmp_path: Path, events: Path, track: Any) -> None:
    record = execute(change_job(JOB, method="tent", learn=False, corruptions=("fog",), track=track), tmp_path)
    (run,) = events.iterdir()
    check(run, record, tmp_path)
    assert "step/loss" not in accumulator.EventAccumulator(str(run)).Reload().Tags()["scalars"]


def test_a_missing_tensorboard_is_named_before_the_run(tmp_path: Path, track: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ctta\[tensorboard\]'"):
        execute(change_job(JOB, track=track), tmp_path)
    assert list(tmp_path.iterdir()) == []
