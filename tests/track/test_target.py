"""--track: how its values are read, and what a sink that fails does to a run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.command import ctta
from ctta.bench.jobs import execute
from ctta.cli.options import parse_targets
from ctta.errors import MissingExtra, ParameterError
from ctta.track import RunName, Target, check_targets, parse_target
from ctta.track.target import SINKS
from jobs import change_job
from track.tracking import JOB, logged


@pytest.mark.parametrize("sink", SINKS)
def test_a_target_is_a_sink_and_a_folder(sink: str) -> None:
    assert parse_target(f"{sink}:some/where") == Target(sink, Path("some/where"))
    assert parse_target(f"{sink}:C:\\runs") == Target(sink, Path("C:\\runs"))


@pytest.mark.parametrize("text", ["", "mlflow", "mlflow:", ":runs", "neptune:runs", "MLflow:runs"])
def test_what_is_no_target_is_refused_with_the_sinks_there_are(text: str) -> None:
    with pytest.raises(ParameterError, match="takes tensorboard:DIR, mlflow:DIR or wandb:DIR"):
        parse_target(text)


def test_the_option_for_tensorboard_means_a_target_and_none_is_used_twice() -> None:
    events = Target("tensorboard", Path("events"))
    assert parse_targets(None, Path("events")) == (events,)
    assert parse_targets(["mlflow:db", "tensorboard:events"], Path("events")) == (Target("mlflow", Path("db")), events)
    assert parse_targets(None) == ()


@pytest.mark.parametrize("sink", SINKS)
def test_a_missing_package_is_named_with_its_extra_before_anything_is_computed(
    sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, sink, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'ctta\[{sink}\]'"):
        execute(change_job(JOB, track=(Target(sink, tmp_path / "sink"),)), tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="file must be a folder"):
        check_targets([Target("tensorboard", tmp_path / "file")])


def test_the_command_line_refuses_an_unknown_sink_before_it_runs(tmp_path: Path) -> None:
    result = ctta("run", "tent", "digits", "--track", "neptune:x", "--out", tmp_path / "runs")
    assert result.exit_code == 1 and "tensorboard:DIR" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sink_that_fails_in_the_middle_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: dict[str, list[int]] = {"full": [], "works": []}

    class Disk:
        def __init__(self, name: str) -> None:
            self.name = name

        def describe(self, facts: object) -> None:
            pass

        def log(self, step: int, numbers: object) -> None:
            if self.name == "full" and step == 3:
                raise OSError("No space left on device")
            steps[self.name].append(step)

        def conclude(self, name: str, value: float, step: int) -> None:
            pass

        def close(self, *, finished: bool) -> None:
            assert finished

    def open_run(directory: Path, run: RunName) -> Any:
        return Disk(directory.name)

    monkeypatch.setattr("ctta.track.tensorboard.open_run", open_run)
    targets = tuple(Target("tensorboard", tmp_path / name) for name in ("full", "works"))
    with caplog.at_level(logging.ERROR, logger="ctta"):
        record = execute(change_job(JOB, method="bn", track=targets), tmp_path / "runs")
    assert steps == {"full": [0, 1, 2], "works": list(range(8))}
    assert len(logged(record, tmp_path / "runs")["step/error"]) == 8
    [entry] = caplog.records
    assert f"tensorboard:{tmp_path / 'full'} failed" in entry.message and entry.exc_info is not None
