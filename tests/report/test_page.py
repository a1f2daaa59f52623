"""The page shows what the records hold, and escapes anything injected into them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ctta.errors import BadData
from ctta.report import write_report
from run_folders import make_run, record_of, steps_of, write_run

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"' $\\frac{ $ {{ 7*7 }} \x08 </text></svg>"


class Read(HTMLParser):
    """A page as a browser parses it: its tags with their attributes, its words, the rows of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.bold: list[list[str]] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tag)
        if tag == "tr":
            self.rows.append([])
            self.bold.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.inside):
            self.rows[-1][-1] = " ".join((self.rows[-1][-1] + data).split())
            if self.inside[-1] == "b":
                self.bold[-1].append(data)
        if not {"style", "script"} & set(self.inside):
            self.words.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def figures(self) -> list[str | None]:
        return [attributes["aria-label"] for attributes in self.named("svg")]


def report(*folders: Path, **options: Any) -> str:
    out = folders[0].parent / "new" / "report.html"
    write_report(folders, out, **options)
    return out.read_text(encoding="utf-8")


def three_runs(folder: Path) -> Path:
    make_run(folder, "source", (9, 5, 6))
    make_run(folder, "tent", (4, 2, 3))
    make_run(folder, "dmse", (3, 4, 1))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return three_runs(tmp_path / "runs")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages without figures for tests that do not need them: drawing takes most of the time."""
    monkeypatch.setattr("ctta.report.sections.drawings", lambda group, prefix: [])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report(three_runs(tmp_path_factory.mktemp("three") / "runs"))


@pytest.fixture(scope="module")
def page(text: str) -> Read:
    return Read(text)


def test_the_table_has_the_errors_of_the_records_and_marks_the_lowest(page: Read) -> None:
    head, source, dmse, tent = page.rows
    assert head == ["method", "mean", "difference", "gaussian noise", "fog", "contrast", "seeds", "images/s", "MB"]
    # Every batch of a domain has the same number of errors here, so the differences are exact.
    assert source == ["source", "66.67", "+40.00 ± 0.00", "90.0", "50.0", "60.0", "1", "100", "123"]
    assert dmse == ["dmse", "26.67", "–", "30.0", "40.0", "10.0", "1", "100", "123"]
    assert tent == ["tent", "30.00", "+3.33 ± 0.00", "40.0", "20.0", "30.0", "1", "100", "123"]
    assert page.bold == [[], [], ["26.67", "30.0", "10.0"], ["20.0"]]


@pytest.mark.usefixtures("undrawn")
def test_seeds_are_one_row_with_their_spread(tmp_path: Path) -> None:
    for seed, wrong in enumerate([(4, 2, 3), (5, 2, 3), (6, 4, 4)]):
        make_run(tmp_path / "runs", "tent", wrong, seed=seed)
    means = [100 * sum(wrong) / 30 for wrong in [(4, 2, 3), (5, 2, 3), (6, 4, 4)]]
    _, row = Read(report(tmp_path / "runs")).rows
    assert row[1] == f"{statistics.fmean(means):.2f} ± {statistics.stdev(means):.2f}"
    assert row[2:6] == ["50.0", "26.7", "33.3", "3"]


def test_methods_that_predict_after_using_the_batch_are_marked_and_the_mark_is_explained(tmp_path: Path) -> None:
    for method in ("tent", "t3a"):
        make_run(tmp_path / "runs", method)
        write_report([tmp_path / "runs"], tmp_path / "page.html")
        words = " ".join(Read((tmp_path / "page.html").read_text(encoding="utf-8")).words)
        assert ("t3a†" in words) == ("† predicts after using the batch, or a part of it" in words) == (method == "t3a")
        assert "tent†" not in words


def test_rows_over_other_seeds_are_named(tmp_path: Path) -> None:
    for method, seeds in {"tent": (0, 1), "bn": (0,)}.items():
        for seed in seeds:
            make_run(tmp_path / "runs", method, (4, 2, 3), seed=seed)
    page = report(tmp_path / "runs")
    assert "other noise in its images: 0 in bn; 0, 1 in tent." in page
    assert "over batches of images; only over the seeds that both rows have" in page
    make_run(tmp_path / "runs", "bn", (4, 2, 3), seed=1)
    assert not re.search("the same seeds|the seeds that both", report(tmp_path / "runs"))


@pytest.mark.usefixtures("undrawn")
def test_a_row_that_cannot_be_paired_says_why(tmp_path: Path) -> None:
    for method, wrong, seed in (("tent", (1, 1, 1), 0), ("bn", (4, 2, 3), 0), ("dmse", (4, 2, 3), 1)):
        make_run(tmp_path / "runs", method, wrong, seed=seed)
    page = Read(report(tmp_path / "runs"))
    assert [row[2] for row in page.rows] == ["difference", "+20.00 ± 0.00", "–", "–"]
    assert "Difference: mean error minus that of tent on the same images" in page.text
    assert "dmse has no difference. dmse and tent have no seed in common" in page.text


@pytest.mark.usefixtures("undrawn")
def test_logits_that_are_not_confidences_are_explained(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "tent")
    assert "not a confidence" not in Read(report(tmp_path / "runs")).text
    make_run(tmp_path / "runs", "roid")
    said = "those of roid are multiplied by the share of each class in the batch."
    assert said in Read(report(tmp_path / "runs")).text


def test_the_reference_row_counts_as_no_difference_when_the_table_is_sorted(text: str) -> None:
    # test_script.py sorts in a browser.
    assert re.findall(r"<td data-sort=.*", text) == ['<td data-sort="0">–</td>']


def test_every_figure_is_there_and_named(page: Read) -> None:
    assert page.figures == [
        *("Mean error", "Speed and memory", "Error by domain", "Difference from the median row", "Error so far"),
        *("Entropy of correct and incorrect predictions", "The teacher of dmse"),
    ]
    # Entropy is 1 / (1 + step): below 0.2 from the sixth step of twelve on.
    assert "7 resets in 12 steps" in page.text


@pytest.mark.usefixtures("undrawn")
def test_unlike_runs_never_share_a_table(runs: Path) -> None:
    make_run(runs, "tent", batch_size=20)
    make_run(runs, "tent", protocol={"name": "mixed"})
    page = Read(report(runs))
    assert [row[0] for row in page.rows].count("method") == 3
    assert "cifar10-c (generated), resnet20, mixed, severity 5, 3 domains of 40 images, batches of 10" in page.text
    assert "cifar10-c (generated), resnet20, continual, severity 5, 3 domains of 40 images, batches of 20" in page.text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("fact", "values", "said"),
    [
        ("severity", [2, 5], ["severity 2", "severity 5"]),
        ("protocol", [{"name": "recurring", "times": times} for times in (1, 3)], ["1 round,", "3 rounds,"]),
        ("batch_size", [10, 20], ["batches of 10", "batches of 20"]),
        ("images", [40, None], ["domains of 40 images", "domains, all images"]),
        ("corruptions", [["fog", "snow"], ["fog"]], ["2 domains", "1 domain "]),
        ("corruptions", [["fog", "snow"], ["snow", "fog"]], ["corruptions 2: fog…", "corruptions 2: snow…"]),
        ("model", [{"name": "m", "digest": d * 32} for d in ("ab", "cd")], ["digest abababab", "digest cdcdcdcd"]),
        ("learn", [True, False], ["continual, severity", "continual, without learning, severity"]),
    ],
)
def test_headings_tell_groups_apart(tmp_path: Path, fact: str, values: list[Any], said: list[str]) -> None:
    for value in values:
        make_run(tmp_path / "runs", "tent", **{fact: value})
    headings = re.findall(r"<h2>(.*(?:batches).*)</h2>", report(tmp_path / "runs"))
    assert len(headings) == len(set(headings)) == 2
    assert [[word in heading for word in said].count(True) for heading in headings] == [1, 1]


def test_a_heading_names_options_of_the_protocol_that_are_not_the_defaults(tmp_path: Path) -> None:
    for concentration in (0.1, 0.01):
        options = {"concentration": concentration}
        make_run(tmp_path / "runs", "tent", protocol={"name": "recurring-correlated", "times": 2, "options": options})
    page = report(tmp_path / "runs")
    assert "recurring-correlated, concentration 0.01, 2 rounds" in page and "recurring-correlated, 2 rounds" in page


@pytest.mark.usefixtures("undrawn")
def test_a_heading_counts_the_images_of_a_stream_whose_domains_have_no_number_of_their_own(tmp_path: Path) -> None:
    # Twelve batches of ten images.
    make_run(tmp_path / "runs", "tent", protocol={"name": "ccc"}, severity=None, images=120)
    assert "cifar10-c (generated), resnet20, ccc, 120 images, batches of 10" in Read(report(tmp_path / "runs")).text


@pytest.mark.usefixtures("undrawn")
def test_data_of_unknown_origin_has_none_in_the_heading(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "tent", data={"name": "cifar10-c", "digest": "7bee"})
    assert "<h2>cifar10-c, resnet20, continual," in report(tmp_path / "runs")


@pytest.mark.usefixtures("undrawn")
def test_only_a_gradual_stream_has_a_severity_that_rises_and_falls(tmp_path: Path) -> None:
    for name in ("gradual", "clean"):
        make_run(tmp_path / name, "tent", protocol={"name": name}, severity=None)
    make_run(tmp_path / "continual", "tent")
    shared = {
        name: dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", report(tmp_path / name).split('<section id="runs">')[0]))
        for name in ("gradual", "clean", "continual")
    }
    assert shared["gradual"]["severity"] == "rises and falls" and shared["continual"]["severity"] == "5"
    assert "severity" not in shared["clean"] and shared["clean"]["protocol"] == "clean"


def test_every_run_says_its_command_settings_digests_and_environment(page: Read) -> None:
    assert len(page.named("details")) == 3
    for name in ("source", "tent", "dmse"):
        assert f"ctta run {name} cifar10-c --seed 0" in page.text
    assert page.text.count("digest: 7bee") == 1 + 3 and page.text.count("digest: 07ae") == 1 + 3
    assert "torch 2.13.0" in page.text and "lr 0.001" in page.text


def test_without_step_logs_the_page_says_so_and_leaves_out_what_needs_them(runs: Path) -> None:
    for log in runs.rglob("steps.jsonl"):
        log.unlink()
    page = Read(report(runs))
    assert page.figures == ["Mean error", "Speed and memory", "Error by domain", "Difference from the median row"]
    assert page.rows[0][:3] == ["method", "mean", "gaussian noise"]
    assert "Some runs of dmse, source, tent have no step log" in page.text


def test_an_unknown_memory_is_a_dash_and_one_domain_has_no_curve(tmp_path: Path) -> None:
    for method in ("bn", "tent"):
        steps = steps_of((3,), ("mixed",))
        record = record_of(method, steps) | ({"peak_memory": None} if method == "bn" else {})
        write_run(tmp_path / "runs", record, steps)
    page = Read(report(tmp_path / "runs"))
    assert page.rows[1][-1] == "–" and page.rows[2][-1] == "123"
    assert "Error by domain" not in page.figures


@pytest.mark.usefixtures("undrawn")
def test_of_many_rows_the_page_says_which_are_drawn(tmp_path: Path) -> None:
    for place in range(20):
        make_run(tmp_path / "runs", "tent", (1 + place % 9, 2, 2), settings={"lr": place / 1000})
    page = Read(report(tmp_path / "runs"))
    assert len(page.rows) == 21
    assert "show 13 rows, the source and those of lowest mean error" in page.text


def test_the_page_needs_nothing_from_outside_and_runs_only_its_own_script(text: str, page: Read) -> None:
    assert re.findall(r"https?:|javascript:|@import|//\w", text) == []
    assert re.findall(r"url\((?!#)", text) == []
    for tag in ("script", "link", "img", "iframe", "object", "base", "a"):
        assert all(a.get("href", "#")[:1] == "#" and "src" not in a for a in page.named(tag))
    (policy,) = [a["content"] for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    assert {"lang": "en"} in page.named("html") and page.named("title")
    assert any(a.get("name") == "viewport" for a in page.named("meta"))


def test_no_two_parts_have_one_id_and_every_reference_is_met(runs: Path) -> None:
    make_run(runs, "tent", batch_size=20)
    page = Read(report(runs))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = [a["href"][1:] for _, a in page.tags if "href" in a]
    wanted += [name for _, a in page.tags for value in a.values() for name in re.findall(r"url\(#(.*?)\)", value or "")]
    assert set(wanted) <= set(ids) and len(wanted) > 15


def hostile_run(folder: Path) -> None:
    steps = steps_of((4, 2, 3), (EVIL, "fog", "$x"), teacher=True)
    record = record_of(EVIL, steps, settings={EVIL: EVIL}, model={"name": EVIL, EVIL: [EVIL]})
    record |= {"command": EVIL, "settings": {EVIL: EVIL, "e_min": EVIL}, "environment": {EVIL: EVIL, "device": EVIL}}
    record |= {"metric": EVIL, "normalisation": EVIL, "scored": EVIL}
    write_run(folder, record, steps)


def test_a_hostile_record_is_shown_as_text(tmp_path: Path) -> None:
    hostile_run(tmp_path / "runs")
    page = Read(report(tmp_path / "runs", title=EVIL))
    # The one script is the page's own.
    assert page.named("script") == [{}] and "img" not in {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in page.text and "{{ 7*7 }}" in page.text
    ends = [tag for tag, _ in page.tags if tag in ("svg", "figure")]
    assert ends == ["figure", "svg"] * (len(ends) // 2) and len(ends) == 12


@pytest.mark.usefixtures("undrawn")
def test_figures_beside_the_runs_are_embedded_without_their_scripts(runs: Path) -> None:
    (runs / "figures").mkdir()
    head = '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">'
    body = '<title>Momentum &amp; error</title><script>alert(1)</script><path id="p" d="M 0 0"/><use href="#p"/></svg>'
    (runs / "figures" / "one.svg").write_text(head + body)
    (runs / "figures" / "two_three.svg").write_text(head + body.replace("<title>Momentum &amp; error</title>", ""))
    page = Read(report(runs, runs))
    assert page.figures[-2:] == ["Momentum & error", ""]
    assert "Momentum & error." in page.text and "two three." in page.text
    assert [a["id"] for a in page.named("path") if "id" in a][-2:] == ["p1-p", "p2-p"]
    assert "#figures" in [a["href"] for a in page.named("a")] and page.named("script") == [{}]


def test_a_figure_that_is_none_is_named(runs: Path) -> None:
    (runs / "figures").mkdir()
    (runs / "figures" / "one.svg").write_text("<html>")
    with pytest.raises(BadData, match=r"one\.svg: This is not an SVG file"):
        report(runs)


def test_a_run_reached_twice_counts_once_and_the_page_is_always_the_same(runs: Path, text: str) -> None:
    assert text == report(runs, runs, next(runs.iterdir()) / "record.json")


@pytest.mark.usefixtures("undrawn")
def test_a_step_log_is_read_from_whichever_folder_has_it(tmp_path: Path) -> None:
    make_run(tmp_path / "whole", "tent")
    shutil.copytree(tmp_path / "whole", tmp_path / "records", ignore=shutil.ignore_patterns("steps.jsonl"))
    assert "have no step log" in Read(report(tmp_path / "records")).text
    assert "have no step log" not in Read(report(tmp_path / "records", tmp_path / "whole")).text


def test_a_broken_log_is_named(runs: Path) -> None:
    log = sorted(runs.rglob("steps.jsonl"))[0]
    log.write_text(log.read_text() + '{"index": 12, "dom')
    with pytest.raises(BadData, match=r"Line 13 of .*steps\.jsonl is not a step"):
        report(runs)


@pytest.mark.slow
def test_sixty_runs_of_a_thousand_steps_make_a_page_that_can_be_sent(tmp_path: Path) -> None:
    steps = [step | {"index": index} for index, step in enumerate((steps_of((4, 2, 3), teacher=True) * 84)[:1000])]
    lines = "".join(json.dumps(step) + "\n" for step in steps)
    for number in range(60):
        settings = {} if number < 12 else {"lr": number // 12 / 1000}
        place = write_run(tmp_path / "runs", record_of("dmse", steps, seed=number % 12, settings=settings))
        (place / "steps.jsonl").write_text(lines)
    assert len(report(tmp_path / "runs").encode()) < 3e6
