"""Step logs are read plain and compressed, and damage raises a named error."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from ctta.bench.folder import RunFolder
from ctta.errors import BadData, MissingData
from run_folders import record_of, steps_of, write_run

STEPS = steps_of((4, 2, 3), teacher=True)
FIRST = json.dumps(STEPS[0]).encode() + b"\n"


def compress_steps() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "scripts" / "compress_steps.py"
    spec = importlib.util.spec_from_file_location("compress_steps", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path, record_of("dmse", STEPS), STEPS)


def test_a_compressed_log_reads_as_the_plain_one(run: Path) -> None:
    plain = run / "steps.jsonl"
    (run / "steps.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert RunFolder(run).read_steps() == STEPS


def test_histograms_are_summed_over_the_steps(run: Path) -> None:
    log = RunFolder(run).read_log()
    # Four steps of ten images per domain, with 4, 2 and 3 incorrect predictions each.
    assert log.entropy_correct == [4 * (6 + 8 + 7)] + [0] * 19
    assert log.entropy_wrong == [0] * 9 + [4 * (4 + 2 + 3)] + [0] * 10
    assert len(log.steps) == 12 and "entropy_right" not in log.steps[0]


def test_the_script_keeps_what_reports_need_and_writes_the_same_bytes_again(run: Path) -> None:
    script = compress_steps()
    size = script.compress(run)
    data = (run / "steps.jsonl.gz").read_bytes()
    assert len(data) == size and not (run / "steps.jsonl").exists()
    dropped = {"error", "loss", "seconds"}
    assert RunFolder(run).read_steps() == [{k: v for k, v in step.items() if k not in dropped} for step in STEPS]
    (run / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in STEPS))
    script.compress(run)
    assert (run / "steps.jsonl.gz").read_bytes() == data


def test_the_log_of_an_unfinished_run_is_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path, record_of("dmse", STEPS) | {"complete": False}, STEPS)
    compress_steps().compress(run)
    assert (run / "steps.jsonl").exists() and not (run / "steps.jsonl.gz").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-9], "cannot be read"),
        (lambda data: b"no gzip", "cannot be read"),
        (lambda data: gzip.compress(FIRST + b"[1]\n"), "Line 2 of .* is not an object"),
        (lambda data: gzip.compress(FIRST + b'{"ind'), "Line 2 of .* is not a step"),
        (lambda data: gzip.compress(b"\xff\xfe\n"), "Line 1 of .* is not a step"),
    ],
    ids=["cut off", "foreign", "no object", "half a line", "no text"],
)
def test_a_damaged_log_is_named(run: Path, damage: object, said: str) -> None:
    plain = run / "steps.jsonl"
    (run / "steps.jsonl.gz").write_bytes(damage(gzip.compress(plain.read_bytes())))  # type: ignore[operator]
    plain.unlink()
    with pytest.raises(BadData, match=said):
        RunFolder(run).read_steps()


def test_a_missing_log_is_named(run: Path) -> None:
    (run / "steps.jsonl").unlink()
    with pytest.raises(MissingData, match=r"steps\.jsonl"):
        RunFolder(run).read_steps()


def test_two_lines_of_one_domain_in_each_others_place_are_named(run: Path) -> None:
    path = run / "steps.jsonl"
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([second, first, *rest]))
    with pytest.raises(BadData, match=r"Line 1 of .* is not a step: it has the index 1"):
        RunFolder(run).read_steps()
