"""ctta compare: the table on stdout, the differences between its rows on stderr."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import Result

from cli.command import ctta
from run_folders import make_run


def compare(*arguments: object) -> Result:
    return ctta("compare", *arguments)


@pytest.fixture
def unlike(tmp_path: Path) -> Path:
    """One method with one seed on two benchmarks, and on one of them with a second seed."""
    make_run(tmp_path, "tent", (4, 2, 3))
    make_run(tmp_path, "tent", (5, 5, 5), images=20)
    make_run(tmp_path, "tent", (7, 7, 7), images=20, seed=1)
    return tmp_path


def test_unlike_runs_are_refused(unlike: Path) -> None:
    result = compare(unlike)
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.startswith("UnlikeRuns: These runs differ in images: ")


def test_a_forced_table_has_every_run_and_is_nothing_but_a_table(unlike: Path) -> None:
    result = compare(unlike, "--force", "--format", "csv")
    table = {line[0]: line[-3:-1] for line in csv.reader(io.StringIO(result.stdout))}
    assert table == {
        "method": ["mean", "seeds"],
        "tent [images=40]": ["30.00", "1"],
        "tent [images=20]": ["60.00 ± 14.14", "2"],
    }
    assert "NOT COMPARABLE: images differs: " in result.stderr


@pytest.mark.parametrize(
    ("form", "begin"), [("latex", "\\begin{tabular}"), ("markdown", "| method"), ("text", "method")]
)
def test_warnings_do_not_precede_a_table(unlike: Path, form: str, begin: str) -> None:
    result = compare(unlike, "--force", "--format", form)
    assert result.stdout.startswith(begin) and "tent [images=40]" in result.stdout
    assert "NOT COMPARABLE" not in result.stdout


def test_rows_over_other_seeds_are_told_and_not_refused(tmp_path: Path) -> None:
    for method, seeds in {"tent": (0, 1), "bn": (0,)}.items():
        for seed in seeds:
            make_run(tmp_path, method, seed=seed)
    result = compare(tmp_path)
    assert result.exit_code == 0 and result.stdout.startswith("method")
    assert result.stderr == "OTHER SEEDS: the rows are not means over the same seeds: 0 in bn; 0, 1 in tent\n"


def test_like_runs_of_the_same_seeds_need_no_warning(tmp_path: Path) -> None:
    for method in ("tent", "bn"):
        make_run(tmp_path, method)
    assert compare(tmp_path).stderr == ""


def test_paired_differences_are_from_the_best_row_or_a_chosen_one(tmp_path: Path) -> None:
    for method, wrong in {"tent": (4, 2, 3), "bn": (5, 2, 5), "dmse": (3, 1, 2)}.items():
        make_run(tmp_path, method, wrong)
    # The error of bn is (5 + 2 + 5) / 30, that of tent 9 / 30, that of dmse 6 / 30, the same in every batch.
    best = compare(tmp_path, "--paired", "--format", "csv").stdout
    assert list(csv.reader(io.StringIO(best)))[1:] == [["bn", "+20.00", "0.00", "1"], ["tent", "+10.00", "0.00", "1"]]
    said = json.loads(compare(tmp_path, "--paired", "--against", "tent", "--json").stdout)
    assert said["against"] == "tent"
    assert {d["label"]: round(d["points"], 6) for d in said["differences"]} == {"bn": 10.0, "dmse": -10.0}


def test_a_method_of_ones_own_is_named_without_the_digest_of_its_code(tmp_path: Path) -> None:
    make_run(tmp_path, "sharpen@b79b76ac2e09")
    make_run(tmp_path, "bn", (5, 2, 5))
    said = json.loads(compare(tmp_path, "--paired", "--against", "sharpen", "--json").stdout)
    assert said["against"].startswith("sharpen@b79b76ac2e09")


def test_runs_that_do_not_pair_are_named(tmp_path: Path) -> None:
    make_run(tmp_path, "tent")
    make_run(tmp_path, "bn", seed=1)
    result = compare(tmp_path, "--paired")
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.startswith("UnlikeRuns: ") and "have no seed in common" in result.stderr
    assert "needs --paired" in compare(tmp_path, "--against", "tent").stderr


def test_json_holds_rows_seeds_and_what_is_unlike(unlike: Path) -> None:
    said = json.loads(compare(unlike, "--force", "--json").stdout)
    assert sorted(row["seeds"] for row in said["rows"]) == [[0], [0, 1]]
    assert list(said["unlike"]) == ["images"]
