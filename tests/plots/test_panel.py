"""Panels put numbers where their axes say, and show any text literally."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctta.plots.canvas import Canvas
from ctta.plots.elements import LineStyle
from ctta.plots.panel import Box, Panel, nice_ticks

SVG = "{http://www.w3.org/2000/svg}"


def drawn(panel: Panel) -> ElementTree.Element:
    canvas = Canvas(height=200)
    canvas.add(panel)
    return ElementTree.fromstring(canvas.svg("a <title> & \x08 more"))


def paths(panel: Panel, colour: str) -> list[str]:
    return [p.get("d", "") for p in drawn(panel).iter(f"{SVG}path") if p.get("stroke") == colour]


def test_a_line_goes_through_its_points_and_stops_at_nan() -> None:
    panel = Panel(Box(10, 20, 100, 50), (0, 10), (0, 1))
    panel.line([0, 5, 6, 10], [0, 1, math.nan, 0.5], LineStyle("#123456"))
    # The box begins at (10, 20), is 100 wide and 50 high, and y grows downwards.
    assert paths(panel, "#123456") == ["M10 70L60 20M110 45"]


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    panel = Panel(Box(0, 0, 100, 90), (0, 1), (0.1, 100), log_y=True)
    panel.line([0, 0, 0, 0], [0.1, 1, 10, 100], LineStyle("#123456"))
    assert re.findall(r"0 (\d+)", paths(panel, "#123456")[0]) == ["90", "60", "30", "0"]


def test_bars_begin_at_zero_and_are_as_long_as_their_values() -> None:
    panel = Panel(Box(10, 0, 100, 60), (0, 50), (1.5, -0.5))
    panel.draw_bars([25, 50], ["#111111", "#222222"])
    bars = [r for r in drawn(panel).iter(f"{SVG}rect") if r.get("fill")]
    assert [(bar.get("x"), bar.get("width")) for bar in bars] == [("10", "50"), ("10", "100")]


def test_any_text_is_shown_literally() -> None:
    panel = Panel(Box(0, 0, 100, 60), (0, 1), (0, 1))
    panel.write(0, 0, "</text><script>&amp;\x00\"'")
    root = drawn(panel)
    assert root.findtext(f"{SVG}title") == "a <title> &  more"
    assert [element.text for element in root.iter(f"{SVG}text")] == ["</text><script>&amp;\"'"]
    assert not list(root.iter(f"{SVG}script"))


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-6, 1e6), most=st.integers(3, 8))
def test_ticks_lie_on_the_axis_at_equal_distances(low: float, span: float, most: int) -> None:
    high = low + span
    if high - low < 1e-9 * max(abs(low), abs(high)):
        return
    values = [value for value, _ in nice_ticks(low, high, most)]
    slack = 1e-6 * span
    assert len(values) <= most and all(low - slack <= value <= high + slack for value in values)
    steps = {b - a for a, b in pairwise(values)}
    assert not steps or max(steps) == pytest.approx(min(steps), rel=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 63, ["0", "20", "40", "60"]),
        (-4.99, 4.99, ["-4", "-2", "0", "2", "4"]),
        (0.9912, 0.9952, ["0.992", "0.993", "0.994", "0.995"]),
    ],
)
def test_tick_labels_are_round_numbers_with_the_digits_they_need(low: float, high: float, labels: list[str]) -> None:
    assert [label for _, label in nice_ticks(low, high)] == labels
