"""MLflow, with the library itself: a run in its database has the numbers of the record and log, once each."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ctta.bench.executors import run_jobs
from ctta.bench.jobs import execute
from ctta.bench.record import Record
from ctta.track import RunName, Target, open_tracker
from ctta.track.mlflow import DATABASE, KEY_TAG
from jobs import change_job
from track.tracking import JOB, Interrupted, Numbers, interrupt_at, logged, results

pytestmark = [pytest.mark.track, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tracked"


@pytest.fixture
def track(folder: Path) -> tuple[Target, ...]:
    return (Target("mlflow", folder),)


def client(folder: Path) -> Any:
    from mlflow import MlflowClient  # noqa: PLC0415, telemetry is off once the sink has been imported

    return MlflowClient(tracking_uri=f"sqlite:///{folder / DATABASE}")


def runs_in(folder: Path, group: str = "ctta-digits") -> list[Any]:
    mlflow = client(folder)
    return list(mlflow.search_runs([mlflow.get_experiment_by_name(group).experiment_id]))


def metrics_of(folder: Path, run: str) -> Numbers:
    """All rows of the database, so that a step that is there twice is seen twice."""
    with sqlite3.connect(folder / DATABASE) as database:
        rows = database.execute("select key, step, value from metrics where run_uuid = ? order by step", (run,))
        found: Numbers = {}
        for key, step, value in rows:
            found.setdefault(key, []).append((step, value))
    return found


def check(folder: Path, record: Record, runs: Path) -> None:
    (run,) = [run for run in runs_in(folder) if run.data.tags[KEY_TAG] == record.address]
    assert run.info.status == "FINISHED"
    assert metrics_of(folder, run.info.run_id) == logged(record, runs) | results(record, runs)
    parameters = run.data.params
    assert parameters["address"] == record.address and parameters["spec.seed"] == str(record.spec.seed)
    for name, value in record.settings.items():
        assert parameters[f"settings.{name}"] == str(value)


def test_a_run_has_the_numbers_of_its_record_and_log(tmp_path: Path, folder: Path, track: Any) -> None:
    record = execute(change_job(JOB, track=track, settings={"alpha_min": 0.98}, command="ctta run x"), tmp_path)
    (run,) = runs_in(folder)
    assert run.info.run_name == f"dmse_alpha_min=0.98_seed=0_{record.address[:8]}"
    assert run.data.params["command"] == "ctta run x"
    check(folder, record, tmp_path)


def test_numbers_can_be_read_while_the_run_goes_on(
    tmp_path: Path, folder: Path, track: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctta.track.mlflow._FLUSH_SECONDS", 0.0)
    seen = []

    def look(adapter: object, steps: int) -> Any:
        def progress(batch: object, log: dict[str, Any]) -> None:
            if log["index"] == 5:
                (run,) = runs_in(folder)
                assert run.info.status == "RUNNING"
                seen.extend(step for step, _ in metrics_of(folder, run.info.run_id)["step/error"])

        return progress

    execute(change_job(JOB, track=track), tmp_path, progress=look)
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_resumed_run_continues_under_its_id_and_has_every_step_once(tmp_path: Path, folder: Path, track: Any) -> None:
    # No checkpoint is saved: the resumed run computes steps that are tracked already.
    with pytest.raises(Interrupted):
        execute(change_job(JOB, track=track), tmp_path, save_every=3600.0, progress=interrupt_at(4))
    (before,) = runs_in(folder)
    assert before.info.status == "KILLED"
    first = metrics_of(folder, before.info.run_id)
    assert [step for step, _ in first["step/error"]] == [0, 1, 2, 3, 4]
    client(folder).set_tag(before.info.run_id, "note", "mine")

    record = execute(change_job(JOB, track=track), tmp_path)
    (after,) = runs_in(folder)
    assert after.info.run_id == before.info.run_id and after.info.status == "FINISHED"
    assert after.data.tags["note"] == "mine"
    found, expected = metrics_of(folder, after.info.run_id), logged(record, tmp_path) | results(record, tmp_path)
    # Computing a step again takes another time; MLflow keeps the first.
    assert [step for step, _ in found.pop("step/seconds")] == [step for step, _ in expected.pop("step/seconds")]
    assert found == expected


def test_a_run_that_was_done_before_is_tracked_too_and_asking_again_doubles_nothing(
    tmp_path: Path, folder: Path, track: Any
) -> None:
    job = change_job(JOB, method="tent")
    record = execute(job, tmp_path)
    for _ in range(2):
        assert execute(change_job(job, track=track), tmp_path) == record
    check(folder, record, tmp_path)


def test_processes_that_run_at_once_share_a_database(tmp_path: Path, folder: Path, track: Any) -> None:
    job = change_job(JOB, method="bn", track=track)
    records = run_jobs([job.with_seed(seed) for seed in range(3)], tmp_path / "runs", workers=3)
    assert len(runs_in(folder)) == 3
    for record in records:
        check(folder, record, tmp_path / "runs")


def test_names_and_numbers_that_mlflow_does_not_allow_are_written_all_the_same(folder: Path) -> None:
    folder.mkdir()
    tracker = open_tracker([Target("mlflow", folder)], RunName("k", "a", "g"))
    many = {f"fact {number}": "x" * 10_000 for number in range(250)}
    tracker.describe(many | {"odd/../name?": None})
    for step in range(1200):
        tracker.log(step, {"domain/snow (5) → €/../x": float("nan"), "inf": float("inf")})
    tracker.close(finished=True)
    (run,) = runs_in(folder, "g")
    assert len(run.data.params) == 251 and run.data.params["odd/name_"] == "None"
    found = metrics_of(folder, run.info.run_id)
    assert set(found) == {"domain/snow _5_ _ _/x", "inf"}
    assert [step for step, _ in found["inf"]] == list(range(1200))


def test_a_database_that_disappears_does_not_end_the_run(
    tmp_path: Path, folder: Path, track: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def started(adapter: object, steps: int) -> Any:
        def progress(batch: object, log: dict[str, Any]) -> None:
            if log["index"] == 2:
                with sqlite3.connect(folder / DATABASE) as database:
                    database.execute("drop table metrics")

        return progress

    record = execute(change_job(JOB, method="bn", track=track), tmp_path, progress=started)
    assert record.complete
    assert any("is no longer tracked there" in entry.message for entry in caplog.records)
