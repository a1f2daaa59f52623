"""Comparison: like with like, seeds together, the best marked, in four forms."""

from __future__ import annotations

import copy
import csv
import io
import statistics
from typing import Any

import pytest

from ctta.bench.compare import UnlikeRuns, differences, rows, text_table


def record(method: str, seed: int = 0, errors: tuple[float, float] = (10.0, 20.0), **changes: Any) -> dict[str, Any]:
    spec = {
        "method": method,
        "settings": {"lr": 0.001, "optimizer": "adam"},
        "model": {"name": "m", "digest": "d"},
        "data": {"name": "cifar10-c", "origin": "generated", "digest": "x", "corruption_seed": seed},
        "protocol": {"name": "continual", "times": 1},
        "corruptions": ["fog", "snow"],
        "severity": 5,
        "images": 100,
        "batch_size": 200,
        "seed": seed,
        "learn": True,
    } | changes
    by_domain = dict(zip(("fog", "snow"), errors, strict=True))
    mean = sum(errors) / 2
    return {"spec": spec, "errors": by_domain, "mean": mean, "images_per_second": 50.0, "source_free": True}


def test_seeds_of_one_method_are_one_row_with_mean_and_spread() -> None:
    found = rows([record("tent", 0, (10, 20)), record("tent", 1, (12, 26)), record("tent", 2, (11, 23))])
    assert len(found) == 1 and found[0].seeds == (0, 1, 2)
    assert found[0].errors == {"fog": 11, "snow": 23}
    assert found[0].mean == 17 and found[0].spread == pytest.approx(statistics.stdev([15, 19, 17]))


def test_other_settings_are_another_row_that_names_them() -> None:
    other = record("tent")
    other["spec"]["settings"] = {"lr": 0.01, "optimizer": "adam"}
    assert [row.label for row in rows([record("tent"), other])] == ["tent", "tent lr=0.01"]


def test_source_data_are_marked() -> None:
    with_source = record("dmse") | {"source_free": False}
    assert rows([with_source])[0].label == "dmse^s"


@pytest.mark.parametrize(
    ("fact", "value"),
    [("images", 50), ("batch_size", 64), ("severity", 3), ("protocol", {"name": "gradual"}), ("learn", False)],
)
def test_unlike_runs_are_refused_with_the_fact_that_differs(fact: str, value: Any) -> None:
    unlike = [record("tent"), record("bn", **{fact: value})]
    with pytest.raises(UnlikeRuns, match=f"differ in {fact}"):
        rows(unlike)
    assert list(differences(unlike)) == [fact]
    assert len(rows(unlike, force=True)) == 2


def test_other_weights_or_other_files_are_unlike_but_another_noise_seed_is_not() -> None:
    other = copy.deepcopy(record("bn"))
    other["spec"]["model"]["digest"] = "e"
    assert list(differences([record("tent"), other])) == ["model"]
    assert differences([record("tent", 0), record("bn", 1)]) == {}


TWO = [record("tent", 0, (10, 30)), record("eata", 0, (20, 15))]


def test_markdown_marks_the_lowest_of_each_column() -> None:
    lines = text_table(rows(TWO), "markdown").splitlines()
    assert lines[2] == "| tent | **10.0** | 30.0 | 20.00 | 1 | 50 |"
    assert lines[3] == "| eata | 20.0 | **15.0** | **17.50** | 1 | 50 |"


def test_latex_is_a_tabular_with_bold() -> None:
    table = text_table(rows(TWO), "latex")
    assert table.startswith("\\begin{tabular}{lrrrrr}") and r"tent & \textbf{10.0} & 30.0" in table


def test_csv_has_plain_numbers() -> None:
    table = list(csv.reader(io.StringIO(text_table(rows(TWO), "csv"))))
    assert table[1][:4] == ["tent", "10.0", "30.0", "20.00"]


def test_text_lines_up() -> None:
    lines = text_table(rows(TWO), "text").splitlines()
    assert len({len(line) for line in lines}) == 1 and "10.0*" in lines[1]
