"""ctta run: its messages about runs on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ctta.cli import app
from ctta.cli.options import parse_seeds, parse_sweeps
from ctta.cli.steps import _smaller_batch
from ctta.errors import ParameterError


def run(out: Path, *options: str) -> Result:
    words = ["run", "source", "digits", "--images", "4", "--corruptions", "fog", "--out", str(out), *options]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result


def test_a_run_that_is_done_is_said_to_be_done_already(tmp_path: Path) -> None:
    first = run(tmp_path, "--json")
    assert "already done" not in first.stderr
    (record,) = json.loads(first.stdout)
    said = f"already done, {tmp_path / record['address'] / 'record.json'}"
    assert run(tmp_path).stderr.splitlines() == [said, "1 domain x 4 images, batches of 50: 1 step per domain"]
    more = run(tmp_path, "--seed", "0..1").stderr
    assert more.splitlines().count(said) == 1 and more.count("already done") == 1
    assert run(tmp_path, "--quiet").stderr == ""


def test_a_run_made_again_to_keep_its_model_is_not_said_to_be_done(tmp_path: Path) -> None:
    run(tmp_path)
    assert "already done" not in run(tmp_path, "--keep").stderr
    assert "already done" in run(tmp_path, "--keep").stderr


def test_the_bar_says_which_of_the_runs_it_is(tmp_path: Path) -> None:
    bars = run(tmp_path, "--seed", "0..1").stderr
    assert "1/2 Source" in bars and "2/2 Source" in bars


def test_a_run_says_its_batch_size_and_warns_of_too_few_steps_if_the_method_learns(tmp_path: Path) -> None:
    def said(method: str, *options: str) -> list[str]:
        words = ["run", method, "digits", "--images", "12", "--corruptions", "fog,snow", "--out", str(tmp_path)]
        result = CliRunner().invoke(app, [*words, *options])
        assert result.exit_code == 0 and "per domain" not in result.stdout, result.output
        return [line for line in result.stderr.splitlines() if line.endswith("per domain") or "FEW" in line]

    steps = "2 domains x 12 images, batches of 50: 1 step per domain"
    warning = "FEW STEPS: tent learns once per step, and fog has only 1 step. Use a smaller --batch-size, such as 4."
    assert said("tent", "--json") == said("tent") == [steps, warning]
    assert said("tent", "--quiet") == []
    assert said("source") == said("tent", "--no-learn") == [steps]
    assert said("tent", "--batch-size", "4") == ["2 domains x 12 images, batches of 4: 3 steps per domain"]


def test_a_model_without_batch_norm_gets_the_optimizer_published_for_it(tmp_path: Path) -> None:
    words = ["run", "tent", "digits", "--images", "4", "--corruptions", "fog", "--batch-size", "2", "--json", "--quiet"]

    def settings(*options: str) -> dict[str, object]:
        result = CliRunner().invoke(app, [*words, "--out", str(tmp_path), *options])
        assert result.exit_code == 0, result.output
        (record,) = json.loads(result.stdout)
        found: dict[str, object] = record["spec"]["settings"]
        return found

    published = settings("--norm", "layer")
    assert (published["optimizer"], published["lr"], published["nesterov"]) == ("sgd", 0.001 * 2 / 64, False)
    assert settings("--norm", "layer", "--set", "lr=0.5")["lr"] == 0.5
    assert settings()["optimizer"] == "adam"


def test_a_sweep_runs_every_combination_of_its_values_with_every_seed(tmp_path: Path) -> None:
    words = ["run", "tent", "digits", "--images", "4", "--corruptions", "fog", "--batch-size", "2", "--json", "--quiet"]
    words += ["--out", str(tmp_path), "--seed", "0..1", "--set", "precision=fp32"]

    def made(*options: str) -> list[tuple[object, ...]]:
        result = CliRunner().invoke(app, [*words, *options])
        assert result.exit_code == 0, result.output
        found = [(record["settings"], record["spec"]["seed"]) for record in json.loads(result.stdout)]
        return [(settings["lr"], settings["statistics"], seed) for settings, seed in found]

    points = [(0.5, "batch", 0), (0.5, "batch", 1), (0.5, "prior:16", 0), (0.5, "prior:16", 1)]
    swept = made("--sweep", "lr=0.5, 1e-3", "--sweep", "statistics=batch,prior:16")
    assert swept == points + [(0.001, *rest) for _, *rest in points]
    assert len(list(tmp_path.iterdir())) == 8


def test_a_sweep_says_which_values_its_labels_leave_out(tmp_path: Path) -> None:
    words = ["run", "tent", "digits", "--images", "4", "--corruptions", "fog", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--sweep", "lr=0.001,0.01", "--sweep", "statistics=batch,source"])
    assert result.exit_code == 0, result.output
    assert "has the value of the recipe: lr=0.001, statistics=batch." in result.stderr


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("lr", "--sweep takes name=value"),
        ("lr=", "--sweep takes name=value"),
        ("lr=1,,2", "--sweep takes name=value"),
        ("momentum=0.5,0.9", "'momentum' is given a value more than once"),
        ("lr=" + ",".join(["1"] * 10_001), "at most 10000 combinations"),
        ("speed=1,2", "Tent has no parameter 'speed'"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused_by_name(tmp_path: Path, sweep: str, message: str) -> None:
    words = ["run", "tent", "digits", "--set", "momentum=0.1", "--sweep", sweep, "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0 and message in " ".join(result.output.split()) and not any(tmp_path.iterdir())


@pytest.mark.parametrize("seeds", ["0..99999999999999999999", "0..10000", "-99999999999999999999..0"])
def test_more_seeds_than_a_command_runs_are_refused(seeds: str) -> None:
    with pytest.raises(ParameterError, match="at most 10000 seeds"):
        parse_seeds(seeds)
    assert len(parse_seeds("0..9999")) == 10_000


def test_commas_in_brackets_and_quotes_belong_to_a_value() -> None:
    assert parse_sweeps(["view=(1,2),[3,4],'a,b',c"], ()) == [{"view": v} for v in ((1, 2), [3, 4], "a,b", "c")]


def test_every_value_of_a_sweep_is_checked_before_the_first_run(tmp_path: Path) -> None:
    words = ["run", "tent", "digits", "--sweep", "statistics=batch,foo", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0 and "foo" in result.output and not any(tmp_path.iterdir())


def test_a_default_that_is_given_makes_no_new_run(tmp_path: Path) -> None:
    words = ["run", "trio", "digits", "--images", "4", "--corruptions", "fog", "--batch-size", "2", "--json", "--quiet"]
    for options in ([], ["--set", "statistics=auto"], ["--set", "statistics=auto:0.45"]):
        assert CliRunner().invoke(app, [*words, "--out", str(tmp_path), *options]).exit_code == 0
    assert len(list(tmp_path.iterdir())) == 1


def test_rounds_of_a_stream_that_does_not_repeat_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", "tent", "digits", "--times", "2", "--out", str(tmp_path)])
    assert result.exit_code != 0 and "continual does not repeat" in " ".join(result.output.split())


@pytest.mark.parametrize(("images", "size"), [(12, 4), (100, 25), (40, 10), (7, None), (31, 9), (1000, 50), (5, None)])
def test_a_suggested_batch_size_leaves_no_single_image(images: int, size: int | None) -> None:
    assert _smaller_batch(images) == size


def test_a_norm_for_which_a_method_has_no_settings_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", "roid", "digits", "--norm", "group", "--out", str(tmp_path)])
    assert result.exit_code != 0 and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["run", "source", "digits"], "ctta.bench.executors.run_jobs"),
        (["reproduce", "main", "digits", "--methods", "source"], "ctta.bench.executors.run_jobs"),
        (["demo"], "ctta.bench.demo.run_demo"),
    ],
)
def test_an_interrupted_command_says_that_it_can_be_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], where: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "Interrupted. The same command continues: " in result.stderr and "reused." in result.stderr


def test_an_interrupted_command_that_makes_no_runs_says_nothing_of_continuing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ctta.bench.folder.read_records", interrupted)
    result = CliRunner().invoke(app, ["compare", "."])
    assert result.exit_code == 130 and "continues" not in result.stderr
