"""Figures as files: the same drawing gives the same bytes, and text stays text."""

from __future__ import annotations

from xml.etree import ElementTree

from matplotlib.figure import Figure

from ctta.bench.compare import rows
from ctta.bench.record import Record
from ctta.cli.demo import DEFAULT
from ctta.method_table import built_in
from ctta.plots.style import COLOURS, METHOD_STYLES, line_style, row_styles, svg
from run_folders import record_of, steps_of


def drawing(label: str = "step") -> Figure:
    figure = Figure(figsize=(3, 2))
    panel = figure.subplots()
    panel.plot([1, 2], [2, 1], marker="o")
    panel.set_xlabel(label)
    return figure


def test_the_same_drawing_gives_the_same_bytes() -> None:
    assert svg(drawing(), "A title") == svg(drawing(), "A title")
    assert svg(drawing(), "A title") != svg(drawing("other"), "A title")


def test_title_and_words_are_in_the_file_as_text() -> None:
    root = ElementTree.fromstring(svg(drawing("error < 5 %"), "a < b\x00\x08"))
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "a < b"
    assert "error < 5 %" in words


def test_lines_of_one_figure_are_told_apart_without_colour() -> None:
    styles = [line_style(number) for number in range(29)]
    assert len({(style.dashes, style.marker) for style in styles}) == 29
    assert len({(style.dashes, style.colour) for style in styles}) == 29
    assert [style.colour for style in styles].count(COLOURS[0]) == 1


def test_every_built_in_method_is_drawn_in_its_own_way() -> None:
    assert set(built_in()) <= set(METHOD_STYLES)
    styles = METHOD_STYLES.values()
    assert len({(style.colour, style.dashes) for style in styles}) == len(styles)
    assert len({(style.dashes, style.marker) for style in styles}) == len(styles)


def test_no_two_methods_of_the_demo_share_a_colour() -> None:
    colours = [METHOD_STYLES[name].colour for name in [*DEFAULT.split(","), "cotta"]]
    assert len(set(colours)) == len(colours)
    # The main ones have the colours that are distinct with any kind of colour vision.
    assert {METHOD_STYLES[name].colour for name in ("source", "bn", "tent", "cotta", "rmt", "dmse")} <= set(COLOURS)


def test_rows_of_one_method_and_methods_of_others_get_styles_of_their_own() -> None:
    made = [("tent", {}), ("tent", {"lr": 0.5}), ("mine.py:Method", {}), ("source", {})]
    records = [Record.from_json(record_of(name, steps_of((1, 2, 3)), settings=settings)) for name, settings in made]
    styles = row_styles(rows(records))
    assert styles["tent"] == METHOD_STYLES["tent"] and styles["source"] == METHOD_STYLES["source"]
    assert len({(style.colour, style.dashes) for style in styles.values()}) == 4
