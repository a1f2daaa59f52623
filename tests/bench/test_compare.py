"""Comparison: only comparable runs, seeds averaged, the best marked, in four formats."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import replace
from typing import Any

import pytest

from ctta.bench.comparability import distinctions
from ctta.bench.compare import Row, UnlikeRuns, differences, rows, text_table, unlike_seeds
from ctta.bench.record import SCORED_AFTER, Record
from run_folders import record_of, steps_of


def record(method: str, seed: int = 0, errors: tuple[float, float] = (10.0, 20.0), **changes: Any) -> Record:
    spec = {
        "settings": {"lr": 0.001, "optimizer": "adam"},
        "model": {"name": "m", "digest": "d"},
        "data": {"name": "cifar10-c", "origin": "generated", "digest": "x", "corruption_seed": seed},
        "protocol": {"name": "continual", "times": 1},
        "images": 100,
        "batch_size": 200,
    } | changes
    made = Record.from_json(record_of(method, steps_of((1, 2), ("fog", "snow")), seed=seed, **spec))
    by_domain = dict(zip(("fog", "snow"), errors, strict=True))
    return replace(made, errors=by_domain, mean=sum(errors) / 2, images_per_second=50.0)


def test_seeds_of_one_method_are_one_row_with_mean_and_spread() -> None:
    found = rows([record("tent", 0, (10, 20)), record("tent", 1, (12, 26)), record("tent", 2, (11, 23))])
    assert len(found) == 1 and found[0].seeds == (0, 1, 2)
    assert found[0].errors == {"fog": 11, "snow": 23}
    assert found[0].mean == 17 and found[0].spread == pytest.approx(statistics.stdev([15, 19, 17]))


def test_other_settings_are_another_row_that_names_them() -> None:
    other = record("tent", settings={"lr": 0.01, "optimizer": "adam"})
    assert [row.label for row in rows([record("tent"), other])] == ["tent", "tent lr=0.01"]


def test_source_data_are_marked() -> None:
    with_source = replace(record("dmse"), source_free=False)
    assert rows([with_source])[0].label == "dmse^s"


def test_methods_that_predict_after_using_the_batch_are_marked_and_a_note_explains_the_mark() -> None:
    lame = record("lame", settings={"affinity": "rbf", "k": 5})
    table = rows([record("tent"), lame])
    assert [row.label for row in table] == ["tent", "lame†"]
    note = "† predicts after using the batch, or a part of it"
    for form in ("text", "markdown"):
        assert note in text_table(table, form)
        assert "†" not in text_table(rows([record("tent"), record("roid", settings={})]), form)
    assert r"lame\textdagger{}" in text_table(table, "latex")
    assert note not in text_table(table, "csv")


def test_the_record_says_it_of_methods_from_outside() -> None:
    mine = record("mine.py:Mine@1a2b3c", settings={})
    assert rows([mine])[0].label == "mine.py:Mine@1a2b3c"
    assert rows([replace(mine, scored=SCORED_AFTER)])[0].label == "mine.py:Mine@1a2b3c†"


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
    other = record("bn", model={"name": "m", "digest": "e"})
    assert list(differences([record("tent"), other])) == ["model"]
    assert differences([record("tent", 0), record("bn", 1)]) == {}


def test_forced_rows_keep_unlike_runs_apart_and_name_what_differs() -> None:
    other: dict[str, Any] = {"model": {"name": "n", "digest": "e"}, "images": None}
    found = rows([record("tent"), record("tent", 0, (1, 2), **other), record("tent", 1, (3, 4), **other)], force=True)
    assert [row.label for row in found] == ["tent [model=m, images=100]", "tent [model=n, images=all]"]
    assert [row.seeds for row in found] == [(0,), (0, 1)]
    assert [row.mean for row in found] == [15, 2.5]


def test_settings_and_source_data_still_keep_forced_rows_apart() -> None:
    given = [record("dmse", source_data=digest * 8, severity=s) for digest in ("ab", "cd") for s in (2, 5)]
    assert [row.label for row in rows(given, force=True)] == [
        *("dmse [severity=2] source abababab", "dmse [severity=5] source abababab"),
        *("dmse [severity=2] source cdcdcdcd", "dmse [severity=5] source cdcdcdcd"),
    ]


@pytest.mark.parametrize(
    ("fact", "values", "said"),
    [
        ("model.digest", ["ab" * 32, "cd" * 32], ["abababab", "cdcdcdcd"]),
        ("model.mean", [[0.5, 0.25], [0.5, 0.5]], ["0.5+0.25", "0.5+0.5"]),
        ("protocol.times", [1, 3], ["1", "3"]),
        ("data.image_list", ["ab" * 32, None], ["abababab", "none"]),
        ("corruptions", [["fog", "snow"], ["fog"]], ["2", "1"]),
        ("corruptions", [["fog", "snow"], ["fog", "frost"]], ["2: fog+snow…", "2: fog+frost…"]),
        ("severity", [5, None], ["5", "none"]),
        ("learn", [True, False], ["True", "False"]),
    ],
)
def test_what_differs_is_said_by_the_one_entry_that_tells_it(fact: str, values: list[Any], said: list[str]) -> None:
    fact_of_all, _, entry = fact.partition(".")
    changes = [{fact_of_all: {"name": "same", entry: value} if entry else value} for value in values]
    found = distinctions([record("tent", **change).spec for change in changes])
    assert found == [{fact: word} for word in said]


def test_digests_are_said_only_where_nothing_else_tells() -> None:
    data = [{"name": "x", "digest": digest, "origin": origin} for digest, origin in (("1", "made"), ("2", "published"))]
    found = distinctions([record("tent", data=facts).spec for facts in data])
    assert found == [{"data.origin": "made"}, {"data.origin": "published"}]


def test_a_name_that_does_not_tell_all_apart_is_followed_by_what_does() -> None:
    protocols = [{"name": "continual"}, {"name": "recurring", "times": 2}, {"name": "recurring", "times": 3}]
    found = distinctions([record("tent", protocol=protocol).spec for protocol in protocols])
    assert found[0] == {"protocol": "continual", "protocol.times": "none"}
    assert found[2] == {"protocol": "recurring", "protocol.times": "3"}


def test_no_severity_is_not_called_all() -> None:
    assert differences([record("tent"), record("eata", severity=None, settings={})])["severity"] == [
        "5 in tent",
        "none in eata",
    ]
    assert differences([record("tent"), record("eata", images=None, settings={})])["images"] == [
        "100 in tent",
        "all in eata",
    ]


def test_runs_of_one_label_are_told_apart_by_their_folders() -> None:
    runs = [record("tent"), record("tent", images=None)]
    said = [f"{images} in tent ({run.address[:8]})" for images, run in zip(("100", "all"), runs, strict=True)]
    assert differences(runs) == {"images": said}


def test_a_refusal_says_every_difference_in_short_and_what_to_do() -> None:
    other = {
        "model": {"name": "m", "digest": "ab" * 32},
        "data": {"name": "photos", "digest": "cd" * 32},
        "images": 7,
        "settings": {},
    }
    with pytest.raises(UnlikeRuns) as refused:
        rows([record("tent", model={"name": "m", "digest": "ef" * 32}), record("eata", **other)])
    said = str(refused.value)
    assert said.startswith("These runs differ in data: cifar10-c in tent; photos in eata. ")
    assert "differ in model: m, digest efefefef in tent; m, digest abababab in eata." in said
    assert "differ in images: 100 in tent; 7 in eata." in said
    assert "{" not in said and "ab" * 5 not in said
    assert all(way in said for way in ("ctta report FOLDER", "--out", "--force"))


def test_of_many_values_a_refusal_names_the_first() -> None:
    with pytest.raises(UnlikeRuns, match=r"4 in tent \(\w{8}\); and 5 more\. "):
        rows([record("tent", images=number) for number in range(1, 10)])


def test_a_domain_of_some_rows_only_has_a_column_that_is_empty_in_the_others() -> None:
    less = replace(record("eata", corruptions=["fog"]), errors={"fog": 5.0}, mean=5.0)
    found = rows([less, record("tent")], force=True)
    assert list(csv.reader(io.StringIO(text_table(found, "csv"))))[1][1:4] == ["5.0", "", "5.00"]
    lines = text_table(found, "markdown").splitlines()
    assert lines[0].startswith("| method | fog | snow |")
    assert lines[2].startswith("| eata [corruptions=1] | **5.0** | – |") and "| 10.0 | **20.0** |" in lines[3]


def test_rows_over_other_seeds_are_named() -> None:
    three = [record(method, seed) for method in ("tent", "bn") for seed in (2, 0, 1)]
    assert unlike_seeds(rows(three)) == []
    assert unlike_seeds(rows([*three, record("dmse", 3)])) == ["0, 1, 2 in tent and 1 more", "3 in dmse"]


TWO = [record("tent", 0, (10, 30)), record("eata", 0, (20, 15))]


def test_markdown_marks_the_lowest_of_each_column() -> None:
    lines = text_table(rows(TWO), "markdown").splitlines()
    assert lines[2] == "| tent | **10.0** | 30.0 | 20.00 | 1 | 50 |"
    assert lines[3] == "| eata | 20.0 | **15.0** | **17.50** | 1 | 50 |"


def test_latex_is_a_tabular_with_bold() -> None:
    table = text_table(rows(TWO), "latex")
    assert table.startswith("\\begin{tabular}{lrrrrr}") and r"tent & \textbf{10.0} & 30.0" in table


def test_latex_has_no_raw_plus_minus_and_its_notes_are_comments() -> None:
    seeds = [record("tent", 0, (10, 20)), record("tent", 1, (12, 26)), record("lame", 0, (30, 40))]
    table, below = text_table(rows(seeds), "latex").split("\\end{tabular}\n")
    assert r"\textbf{17.00 $\pm$ 2.83}" in table and "±" not in table
    lines = below.splitlines()
    assert lines[0] == "% bold: lowest error of the column; ± standard deviation over seeds"
    assert len(lines) == 2 and all(line.startswith("% ") for line in lines)


def test_csv_has_plain_numbers() -> None:
    table = list(csv.reader(io.StringIO(text_table(rows(TWO), "csv"))))
    assert table[1][:4] == ["tent", "10.0", "30.0", "20.00"]


def test_text_lines_up() -> None:
    lines = text_table(rows(TWO), "text").splitlines()[:3]
    assert len({len(line) for line in lines}) == 1 and "10.0*" in lines[1]


def test_a_line_below_a_table_explains_the_marks_that_occur_in_it() -> None:
    seeds = [record("tent", 0, (10, 20)), record("tent", 1, (12, 26))]
    assert text_table(rows(TWO), "text").endswith("\n\n* lowest error of the column\n")
    assert text_table(rows(TWO), "markdown").endswith("\n\nbold: lowest error of the column\n")
    assert text_table(rows(seeds), "text").endswith("\n\n± standard deviation over seeds\n")
    both = text_table(rows([*seeds, replace(record("dmse", settings={}), source_free=False)]), "text").splitlines()
    assert both[-1] == "* lowest error of the column; ± standard deviation over seeds; method^s was given source data"
    assert len(text_table(rows(TWO[:1]), "text").splitlines()) == 2
    assert "lowest" not in text_table(rows(TWO), "csv") and "lowest" not in text_table(rows(TWO), mark=False)


HOSTILE = Row(
    label="dmse^s a|b=\\ 50% & #1 $x_1$ {~^} <b>`*_i_*`</b> [l](u) fog_x\n\x1b[31mred",
    seeds=(0,),
    errors={"a_b & c|d": 1.0, "_x_": 2.0},
    mean=1.5,
    spread=None,
    images_per_second=1.0,
)


def test_latex_escapes_what_it_would_read_as_commands() -> None:
    head, line = (text_table([HOSTILE], "latex").splitlines()[i] for i in (1, 3))
    assert head == r"method & a\_b \& c\textbar{}d & \_x\_ & mean & seeds & images/s \\"
    label = (
        r"dmse$^s$ a\textbar{}b=\textbackslash{} 50\% \& \#1 \$x\_1\$ \{\textasciitilde{}\textasciicircum{}\} "
        r"\textless{}b\textgreater{}`*\_i\_*`\textless{}/b\textgreater{} [l](u) fog\_x"
        r"\textbackslash{}n\textbackslash{}x1b[31mred"
    )
    assert line == label + r" & 1.0 & 2.0 & 1.50 & 1 & 1 \\"


def test_markdown_escapes_what_it_would_read_as_markup() -> None:
    head, _, line = text_table([HOSTILE], "markdown").splitlines()[:3]
    assert head == r"| method | a_b &amp; c\|d | \_x\_ | mean | seeds | images/s |"
    label = (
        r"dmse^s a\|b=\\ 50% &amp; #1 \$x_1\$ {\~^} &lt;b&gt;\`\*\_i\_\*\`&lt;/b&gt; [l\](u) fog_x"
        r"\\n\\x1b[31mred"
    )
    assert line == f"| {label} | 1.0 | 2.0 | 1.50 | 1 | 1 |"


def test_a_label_with_line_breaks_and_control_characters_stays_one_line_of_text() -> None:
    assert text_table([HOSTILE], "text").splitlines()[2:] == ["", "method^s was given source data"]
    assert r"\n\x1b[31mred" in text_table([HOSTILE], "text")


def test_runs_of_changed_model_code_are_two_rows_and_none_is_hidden() -> None:
    models = [{"name": "m", "digest": "d", "code": digit * 64} for digit in "ab"]
    found = rows([record("tent", seed, (10 * n, 20), model=models[n]) for n in (0, 1) for seed in (0, 1)])
    assert [(row.label, row.seeds, row.errors["fog"]) for row in found] == [
        ("tent code aaaaaaaa", (0, 1), 0),
        ("tent code bbbbbbbb", (0, 1), 10),
    ]


def test_a_record_that_is_read_twice_is_one_run() -> None:
    [row] = rows([record("tent"), record("tent")])
    assert row.label == "tent" and len(row.records) == 1
