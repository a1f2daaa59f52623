"""A story shows the images of every domain, and the errors of models along the stream."""

from __future__ import annotations

import base64
from xml.etree import ElementTree

import pytest

from ctta.plots.elements import LineStyle
from ctta.plots.story import Course, draw_story
from run_folders import steps_of

SVG = "{http://www.w3.org/2000/svg}"


def test_domains_have_their_pictures_and_models_their_errors() -> None:
    runs = {"source model": (9, 5, 6), "adapted": (3, 4, 1)}
    courses = [Course(name, steps_of(wrong), LineStyle("#123456")) for name, wrong in runs.items()]
    canvas = draw_story(courses, [[b"one", b"two"], [b"three"], [b"four"]])
    (panel,) = canvas.panels
    heights = [[y for _, y in line] for line in panel.lines]
    # A line per model over twelve batches, then one per model and domain.
    assert heights[:2] == [[90.0] * 4 + [50.0] * 4 + [60.0] * 4, [30.0] * 4 + [40.0] * 4 + [10.0] * 4]
    assert heights[2:] == [[y, y] for y in (90.0, 50.0, 60.0, 30.0, 40.0, 10.0)]
    root = ElementTree.fromstring(canvas.svg("a story"))
    shown = [image.get("href", "").partition("base64,")[2] for image in root.iter(f"{SVG}image")]
    assert [base64.b64decode(data) for data in shown] == [b"one", b"two", b"three", b"four"]
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert "source model: 66.7 % error" in words and "adapted: 26.7 % error" in words


def test_only_the_colour_of_a_style_is_used() -> None:
    canvas = draw_story([Course("a", steps_of((1, 2, 3)), LineStyle("#123456", ":", "s"))], [[b"x"], [b"y"], [b"z"]])
    drawing = canvas.svg("a story").decode()
    assert drawing.count("#123456") == 1 + 1 + 3  # legend, batches, domains
    assert "stroke-dasharray" not in drawing


def test_pictures_stand_above_their_domains() -> None:
    canvas = draw_story([Course("a", steps_of((1, 2, 3)), LineStyle("#123456"))], [[b"x"], [b"y"], [b"z"]])
    (panel,) = canvas.panels
    places = [
        (float(image.get("x", "")), float(image.get("width", "")))
        for image in ElementTree.fromstring(canvas.svg("a story")).iter(f"{SVG}image")
    ]
    third = panel.box.width / 3
    middles = [panel.box.left + (number + 0.5) * third for number in range(3)]
    assert [x + width / 2 for x, width in places] == pytest.approx(middles, abs=0.1)
