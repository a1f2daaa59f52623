"""ctta report: a page from folders of records."""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path

import pytest

from cli.command import ctta
from run_folders import make_run, record_of, steps_of, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    make_run(tmp_path / "a", "tent")
    make_run(tmp_path / "b", "bn")
    return tmp_path


def test_a_page_is_written_into_a_folder_that_is_made(runs: Path) -> None:
    out = runs / "new" / "page.html"
    result = ctta("report", runs / "a", runs / "b", "-o", out, "--title", "Two <methods>")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"report {out}: 2 runs, ")
    text = out.read_text(encoding="utf-8")
    assert "<title>Two &lt;methods&gt;</title>" in text and "2 runs in 1 comparable group." in text
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


def test_the_page_is_called_report_and_opened_if_asked(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.chdir(runs)
    result = ctta("report", "a", "--json", "--open")
    said = json.loads(result.stdout)
    assert said == {"file": "report.html", "runs": 1, "bytes": (runs / "report.html").stat().st_size}
    assert opened == [(runs / "report.html").as_uri()]


def test_without_a_complete_record_there_is_no_page(tmp_path: Path) -> None:
    write_run(tmp_path, record_of("bn", steps_of((1, 2, 3))) | {"complete": False})
    result = ctta("report", tmp_path, "-o", tmp_path / "report.html")
    assert result.exit_code == 1
    assert result.stderr.startswith("BadData: There is no complete run record below")
    assert not (tmp_path / "report.html").exists()


def test_a_missing_extra_is_named(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = ctta("report", runs / "a", "-o", runs / "report.html")
    assert result.exit_code == 1
    assert "MissingExtra: jinja2 is needed here" in result.stderr and "pip install 'ctta[demo]'" in result.stderr
