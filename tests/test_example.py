"""The examples run as a user would run them, and the tutorials show them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tutorials
from third_party import third_party

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*command: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.docs
def test_the_example_runs_and_resumes_bit_for_bit() -> None:
    output = run(str(EXAMPLES / "adapt_my_model.py"))
    assert "the predictions are the same, bit for bit" in output
    assert output.count("alpha") == 3


@pytest.mark.docs
@pytest.mark.slow
def test_on_a_drifting_stream_adaptation_halves_the_error_of_a_cnn_of_ones_own(tmp_path: Path) -> None:
    lines = run(str(EXAMPLES / "drifting_stream.py"), str(tmp_path)).splitlines()
    means = {line.split()[0]: float(line.split()[-2]) for line in lines}
    assert list(means) == ["source", "bn", "tent", "dmse"]
    assert max(means["bn"], means["tent"], means["dmse"]) < 0.6 * means["source"]
    assert (tmp_path / "drifting_stream.svg").stat().st_size > 1000


@pytest.mark.docs
@pytest.mark.slow
def test_compared_methods_give_a_table_pairs_a_refusal_and_a_report(tmp_path: Path) -> None:
    output = run(str(EXAMPLES / "compare_methods.py"), str(tmp_path))
    assert [line.split()[0] for line in output.splitlines()[1:5]] == ["source", "bn", "tent", "dmse"]
    assert "error minus bn, points" in output
    assert "refused: These runs differ in batch_size: 50" in output
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.docs
@pytest.mark.slow
def test_a_new_method_keeps_the_contract() -> None:
    output = run(str(EXAMPLES / "new_method.py"))
    assert output.startswith("Confident keeps the contract\n")
    assert output.count("%") == 4


@pytest.mark.slow
@pytest.mark.models
def test_a_transformer_of_hugging_face_adapts() -> None:
    third_party("transformers")
    start = f"import runpy, third_party; third_party.third_party('transformers'); runpy.run_path({str(EXAMPLES)!r} + "
    output = run("-c", start + "'/vision_transformer.py')", PYTHONPATH=os.pathsep.join(sys.path))
    assert "head 'classifier', 10 classes" in output
    assert "BN refuses" in output
    assert output.count("one image at a time") == 2


def test_tutorials_show_the_examples_as_they_are() -> None:
    assert [name for name in tutorials.TITLES if not tutorials.is_fresh(name)] == [], "run: python scripts/tutorials.py"


def test_a_changed_example_makes_its_tutorial_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in tutorials.TITLES:
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        (tmp_path / f"{name}.py").write_text(text.replace("batch_size=50", "batch_size=40"), encoding="utf-8")
    monkeypatch.setattr(tutorials, "EXAMPLES", tmp_path)
    assert tutorials.main(["--check"]) == 1
    assert "docs/tutorials/drifting_stream.md is out of date" in capsys.readouterr().out
