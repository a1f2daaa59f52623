"""The tables of docs/statistics.md match the measurements in docs/results/statistics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import statistics_tables as tables


def test_the_tables_of_the_page_are_fresh() -> None:
    text = tables.PAGE.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run python scripts/statistics_tables.py"


def test_a_table_says_how_far_auto_is_behind_the_best_fixed_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"source": 10.0, "share:0.2": 12.0, "share:0.4": 14.0, "share:0.7": 20.0, "batch": 30.0, "misfit": 1.0}
    errors = {"clean, 64": row | {"auto": 10.5}, "noise, 64": row | {"source": 60.0, "auto": 15.0}}
    (tmp_path / "net_bn.json").write_text(json.dumps({"errors": errors}))
    monkeypatch.setattr(tables, "MEASURED", tmp_path)
    page = "<!-- choice: net_bn -->\nstale\n<!-- end -->\n<!-- choices: net_bn -->\n<!-- end -->\n"
    lines = tables.filled(page).splitlines()
    assert "stale" not in lines
    assert lines[3] == "| clean, 64 | 10.0 | 12.0 | 14.0 | 20.0 | 30.0 | 1.0 | 10.5 | +0.5 |"
    # Means and largest gaps by hand: the best fixed choice has 10 and 12.
    fixed = "35.0 (48.0) | 12.0 (2.0) | 14.0 (4.0) | 20.0 (10.0) | 30.0 (20.0)"
    assert lines[-2] == f"| `net` | bn | {fixed} | 1.0 (-9.0) | 12.8 (3.0) | 1 of 2 |"


def test_a_choice_that_was_not_measured_has_a_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"source": 10.0, "share:0.2": 12.0, "share:0.4": 14.0, "share:0.7": 20.0, "batch": 30.0, "auto": 11.0}
    for name, own in (("net_bn", row | {"misfit": 13.0}), ("net_trio", row)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"errors": {"clean, 64": own}}))
    monkeypatch.setattr(tables, "MEASURED", tmp_path)
    lines = tables.filled("<!-- choices: net_bn net_trio -->\n<!-- end -->\n").splitlines()
    assert "| misfit |" in lines[1]
    assert lines[3].endswith("| 13.0 (3.0) | 11.0 (1.0) | 0 of 1 |")
    assert lines[4].endswith("| 30.0 (20.0) | – | 11.0 (1.0) | 0 of 1 |")


def test_trio_is_compared_with_the_unadapted_network_where_that_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, source, auto in (("net_bn", 6.0, 7.0), ("net_trio", 9.0, 8.5)):
        errors = {kind: {"source": source, "auto": auto} for kind in ("clean, 64", "severity 1, 64", "severity 5, 64")}
        (tmp_path / f"{name}.json").write_text(json.dumps({"errors": errors}))
    monkeypatch.setattr(tables, "MEASURED", tmp_path)
    lines = tables.filled("<!-- unadapted: net -->\n<!-- end -->\n").splitlines()
    assert lines[1:-1] == [
        "| stream | `net` |",
        "|---|---|",
        "| clean, 64 | 6.0, 8.5 (+2.5) |",
        "| severity 1, 64 | 6.0, 8.5 (+2.5) |",
    ]
