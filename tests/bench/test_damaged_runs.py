"""Interrupted runs with damaged files: they resume from undamaged files, or say what to delete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctta.bench.compare import other_versions
from ctta.bench.folder import read_record
from ctta.bench.jobs import execute
from ctta.bench.record import Record
from ctta.bench.steps import line_of, read_steps
from ctta.errors import BadData
from jobs import make_job
from run_folders import make_run, record_of, steps_of, write_run
from running import numbers

JOB = make_job("tent", "digits", "digits_resnet8", corruptions=("fog", "contrast"), images=12, batch_size=4)


class Interrupted(Exception):
    """Simulates Ctrl-C."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return execute(JOB, folder), folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run interrupted in its sixth step, with checkpoints of the fifth and the fourth."""

    def listen(adapter: object, steps: int) -> Any:
        def progress(batch: object, log: dict[str, Any]) -> None:
            if log["index"] == 5:
                raise Interrupted

        return progress

    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Interrupted):
        execute(JOB, folder, save_every=0.0, progress=listen)
    return folder


@pytest.fixture
def place(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path / "runs")
    return next((tmp_path / "runs").iterdir())


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_line_five(place: Path) -> None:
    lines = (place / "steps.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"images": 4', b'"images": 5')
    (place / "steps.jsonl").write_bytes(b"".join(lines))


def test_the_last_two_checkpoints_are_kept(place: Path) -> None:
    assert sorted(path.name for path in place.glob("*.ctta")) == ["step-00000004.ctta", "step-00000005.ctta"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: half(place / "step-00000005.ctta"),
        lambda place: (place / "step-00000005.ctta").write_bytes(b""),
        lambda place: (place / "step-00000005.ctta").rename(place / "step-00000099.ctta"),
        lambda place: (place / "step-five.ctta").write_text("no checkpoint"),
        lambda place: half(place / "record.json"),
        spoil_line_five,
    ],
)
def test_a_damaged_newest_checkpoint_or_its_log_falls_back_to_the_one_before(
    place: Path, whole: tuple[Record, Path], damage: Callable[[Path], object]
) -> None:
    damage(place)
    assert numbers(execute(JOB, place.parent), place.parent) == numbers(*whole)


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: [half(path) for path in place.glob("*.ctta")],
        lambda place: (place / "steps.jsonl").write_bytes(b"\xff\xfe"),
        lambda place: (place / "steps.jsonl").unlink(),
        lambda place: (place / "threads").write_text("many"),
        lambda place: (place / "threads").write_bytes(b"\xff"),
        lambda place: (place / "threads").write_text("9" * 5000),
        lambda place: half(place / "threads"),
    ],
)
def test_a_run_that_cannot_go_on_says_what_to_delete(place: Path, damage: Callable[[Path], object]) -> None:
    damage(place)
    with pytest.raises(BadData, match=f"Delete {place}"):
        execute(JOB, place.parent)


def test_the_threads_that_an_older_version_wrote_are_read(place: Path, whole: tuple[Record, Path]) -> None:
    (place / "threads").write_text((place / "threads").read_text().split()[1])
    assert numbers(execute(JOB, place.parent), place.parent) == numbers(*whole)


def test_a_run_that_an_older_version_began_goes_on(place: Path, whole: tuple[Record, Path]) -> None:
    steps = read_steps(place / "steps.jsonl")
    (place / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    record = execute(JOB, place.parent)
    assert numbers(record, place.parent) == numbers(*whole)
    assert len(read_steps(place / "steps.jsonl", record.counts)) == 6


@pytest.mark.parametrize("key", ["seconds", "peak_memory", "command", "skipped", "images_per_second"])
def test_a_record_with_any_changed_value_is_refused(tmp_path: Path, key: str) -> None:
    path = make_run(tmp_path, "tent") / "record.json"
    record = json.loads(path.read_text())
    record[key] = "other" if key == "command" else 1
    path.write_text(json.dumps(record))
    with pytest.raises(BadData, match=r"changed or damaged.*delete"):
        read_record(path)


@pytest.mark.parametrize("made", [0, 3, "2", None, 2.0, True])
def test_a_record_of_another_format_is_refused_by_its_format(tmp_path: Path, made: object) -> None:
    path = make_run(tmp_path, "tent") / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": made}))
    with pytest.raises(BadData, match=f"of format {made}; ctta .* reads formats 1 to 2"):
        read_record(path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"format": ' + "9" * 5000 + "}", '{"format": 2, "command": "\\ud800"}']
)
def test_json_that_cannot_be_read_or_printed_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(BadData, match=r"record\.json is not a run record: .*delete it"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda steps: steps.__setitem__(2, steps[2].replace('"wrong": 4', '"wrong": 3')),
        lambda steps: steps.__setitem__(2, steps[2].replace('"check"', '"chekc"')),
        lambda steps: steps.__setitem__(2, steps[2].replace("seconds", "minutes")),
        lambda steps: steps.__setitem__(
            2, json.dumps({"index": 2, "domain": "fog", "images": 10, "error": 0.0}) + "\n"
        ),
        lambda steps: steps.pop(),
        lambda steps: steps.append(steps[-1]),
    ],
)
def test_a_log_with_any_changed_or_missing_line_is_refused(
    tmp_path: Path, change: Callable[[list[str]], object]
) -> None:
    steps = steps_of((4, 2, 1))
    record = Record.from_json(record_of("tent", steps))
    lines = [line_of(step) for step in steps]
    path = write_run(tmp_path, record.to_json()) / "steps.jsonl"
    path.write_text("".join(lines))
    assert read_steps(path, record.counts) == steps
    change(lines)
    path.write_text("".join(lines))
    with pytest.raises(BadData, match=r"steps\.jsonl.*delete"):
        read_steps(path, record.counts)


@pytest.mark.parametrize(
    "step",
    [
        [],
        {"index": 0, "domain": "fog"},
        {"index": 10**30, "domain": "fog", "images": 4, "error": 0.0},
        {"index": 0, "domain": 5, "images": 4, "error": 0.0},
        {"index": 0, "domain": "\ud800", "images": 4, "error": 0.0},
        {"index": 0, "domain": "fog", "images": 4, "error": float("nan")},
        {"index": 0, "domain": "fog", "images": 4, "error": 0.0, "entropy_right": 3},
    ],
)
def test_a_step_of_a_wrong_type_is_named(tmp_path: Path, step: object) -> None:
    (tmp_path / "steps.jsonl").write_text(json.dumps(step) + "\n")
    with pytest.raises(BadData, match=r"Line 1 of .* is not a step"):
        read_steps(tmp_path / "steps.jsonl")


def test_a_record_of_another_major_version_is_shown_as_such() -> None:
    record = Record.from_json(record_of("tent", steps_of((4, 2, 1))))
    here = replace(record, environment={**record.environment, "ctta": "0.9.1", "torch": "2.0.0+cpu"})
    torch_1 = replace(record, environment={"ctta": "0.1.0", "torch": "1.13.1"})
    assert other_versions([here]) == []
    (said,) = other_versions([here, torch_1, torch_1])
    assert said.startswith("torch 1.13.1 (here 2.") and said.endswith("in tent and 1 more")
