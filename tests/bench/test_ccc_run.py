"""`ctta run --protocol ccc`: the source model is measured once, and the run follows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ctta.bench.compare import differences
from ctta.bench.folder import RunFolder, read_records
from ctta.cli import app
from ctta.corruption_names import CORRUPTIONS

ARGS = ("--protocol", "ccc", "--images", "60", "--batch-size", "10", "--corruptions", "contrast,brightness,fog")
OPTIONS = ("speed=20", "measured_step=5", "measured_images=20", "step=2.5", "target=60")


def run(folder: Path, method: str, stream: str, *others: str) -> str:
    options = [part for option in OPTIONS for part in ("--option", option)]
    result = CliRunner().invoke(app, ["run", method, stream, *ARGS, *options, "--out", str(folder / "runs"), *others])
    assert result.exit_code == 0, result.output
    return result.output


def test_digits_run_with_fractional_severities_and_the_table_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTTA_CACHE", str(tmp_path / "cache"))
    assert "accuracy under" in run(tmp_path, "source", "digits")
    assert "accuracy under" not in run(tmp_path, "bn", "digits")
    bn, source = sorted(read_records(tmp_path / "runs"), key=lambda record: record.spec.method)
    assert source.images == 60 and list(source.errors) == ["ccc"]
    assert source.spec.protocol == bn.spec.protocol and len(str(bn.spec.protocol["path"])) == 64
    run(tmp_path, "bn", "digits", "--seed", "1")
    records = read_records(tmp_path / "runs")
    assert len({record.spec.protocol["path"] for record in records}) == 2 and not differences(records)
    assert source.spec.protocol["options"] == {
        "target": 60.0,
        "speed": 20,
        "step": 2.5,
        "measured_step": 5.0,
        "measured_images": 20,
        "fill": "bilinear",
    }
    assert source.spec.corruptions == ("contrast", "brightness", "fog") and source.spec.severity is None
    log = RunFolder(tmp_path / "runs" / source.address).read_log(source.counts)
    assert {step["severity"] for step in log.steps} <= {2.5, 5.0, 7.5, 10.0}


def test_cifar_images_run_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTTA_CACHE", str(tmp_path / "cache"))
    x = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "clean.npz", x=x, y=np.arange(20) % 10)
    shown = run(tmp_path, "source", "cifar10-c", "--data", str(tmp_path / "clean.npz"), "--quiet", "--json")
    assert json.loads(shown)[0]["images"] == 60


def test_corruptions_that_are_named_are_all_used_and_otherwise_ccc_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTTA_CACHE", str(tmp_path / "cache"))
    options = [part for option in OPTIONS for part in ("--option", option)]
    for named in ([], ["--corruptions", ",".join(CORRUPTIONS)]):
        job = ["run", "source", "digits", "--protocol", "ccc", "--images", "40", *options, *named]
        result = CliRunner().invoke(app, [*job, "--out", str(tmp_path / "runs")])
        assert result.exit_code == 0, result.output
    used = [set(record.spec.corruptions) for record in read_records(tmp_path / "runs")]
    # CCC-Easy leaves out brightness.
    assert sorted(used, key=len) == [set(CORRUPTIONS) - {"brightness"}, set(CORRUPTIONS)]


def test_options_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    wrong = CliRunner().invoke(app, ["run", "source", "digits", *ARGS, "--option", "pace=3", "--out", str(tmp_path)])
    assert wrong.exit_code == 1 and "no option 'pace'" in wrong.stderr
