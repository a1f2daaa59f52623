"""Weights & Biases, with the library itself in offline mode: a run's file has the numbers of the record and log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctta.bench.jobs import execute
from ctta.bench.record import Record
from ctta.track import Target
from jobs import change_job
from running import wait_for
from track.tracking import JOB, Interrupted, Numbers, interrupt_at, logged, results
from track.wandb_files import exit_codes, history, updates

pytestmark = [pytest.mark.track, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tracked"


@pytest.fixture
def track(folder: Path) -> tuple[Target, ...]:
    return (Target("wandb", folder),)


def file_of(folder: Path) -> Path:
    """The file of the only run, once it has ended."""
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    wait_for(lambda: bool(exit_codes(file)))  # another process writes it
    return file


def numbers(file: Path) -> Numbers:
    found: Numbers = {}
    for row in history(file):
        for name, value in row.items():
            if not name.startswith("_"):
                found.setdefault(name, []).append((row["_step"], float(value)))
    return found


def check(folder: Path, record: Record, runs: Path) -> None:
    file = file_of(folder)
    assert file.name == f"run-{record.address}.wandb" and exit_codes(file) == [0]
    assert numbers(file) == logged(record, runs)
    summary = updates(file, "summary")
    assert {name: summary[name] for name in results(record, runs)} == {
        name: value for name, [(_, value)] in results(record, runs).items()
    }
    facts = updates(file, "config")
    assert facts["address"] == record.address and facts["spec.seed"] == record.spec.seed
    for name, value in record.settings.items():
        assert facts[f"settings.{name}"] == value


def test_a_run_has_the_numbers_of_its_record_and_log(tmp_path: Path, folder: Path, track: Any) -> None:
    record = execute(change_job(JOB, track=track, command="ctta run x"), tmp_path)
    check(folder, record, tmp_path)
    assert updates(file_of(folder), "config")["command"] == "ctta run x"


def test_an_interrupted_run_has_every_step_once(tmp_path: Path, folder: Path, track: Any) -> None:
    with pytest.raises(Interrupted):
        execute(change_job(JOB, track=track), tmp_path, save_every=0.0, progress=interrupt_at(4))
    file = file_of(folder)
    assert [step for step, _ in numbers(file)["step/error"]] == [0, 1, 2, 3, 4] and exit_codes(file) == [1]
    record = execute(change_job(JOB, track=track), tmp_path)
    check(folder, record, tmp_path)


def test_a_run_that_was_done_before_is_tracked_too_and_asking_again_doubles_nothing(
    tmp_path: Path, folder: Path, track: Any
) -> None:
    job = change_job(JOB, method="tent")
    record = execute(job, tmp_path)
    for _ in range(2):
        assert execute(change_job(job, track=track), tmp_path) == record
    check(folder, record, tmp_path)
