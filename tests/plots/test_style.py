"""Figures as files: the same drawing gives the same bytes, and text stays text."""

from __future__ import annotations

from xml.etree import ElementTree

from matplotlib.figure import Figure

from ctta.plots.style import COLOURS, line_style, svg


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
