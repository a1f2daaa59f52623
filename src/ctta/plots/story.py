"""A stream at a glance: what its images look like, and the error of two models along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ctta.bench.scores import Scores
from ctta.bench.steps import StepFacts
from ctta.plots.canvas import Canvas, Sample
from ctta.plots.elements import LineStyle
from ctta.plots.panel import TICK, Box, Panel, nice_ticks
from ctta.plots.stream_axis import stretches_of
from ctta.plots.text import domain_name, text_width

_LEFT, _RIGHT, _HEIGHT = 44.0, 8.0, 170.0
_GAP = 3.0


class Course(NamedTuple):
    """The run of one model through a stream.

    Args:
        name: Its name in the legend.
        steps: The steps of its run.
        style: Colour of its line.
    """

    name: str
    steps: Sequence[StepFacts]
    style: LineStyle


def draw_story(courses: Sequence[Course], pictures: Sequence[Sequence[bytes]], *, width: float = 8.4) -> Canvas:
    """Draw images of every domain above the errors of models along the stream.

    A thick line is the error of a domain, a thin one that of a batch.

    Args:
        courses: Runs over the same stream.
        pictures: For each domain in the order of the stream, PNG files to show from top to bottom.
        width: Width of the drawing in inches.
    """
    canvas = Canvas(width)
    stretches = stretches_of(courses[0].steps)
    entries: list[tuple[str, Sample]] = [
        (
            f"{course.name}: {Scores.of_steps(course.steps).mean:.1f} % error",
            _solid(course.style, 3.0),
        )
        for course in courses
    ]
    below = canvas.legend(entries, 4) + 4
    ends = (-0.5, len(courses[0].steps) - 0.5)
    side = (canvas.width - _LEFT - _RIGHT) / len(stretches) - _GAP
    strip = (side + _GAP) * max(len(column) for column in pictures)
    panel = canvas.add(Panel(Box(_LEFT, below + strip + 4, canvas.width - _LEFT - _RIGHT, _HEIGHT), ends, (0, 100)))
    for number, column in enumerate(pictures):
        left = _LEFT + number * (side + _GAP) + _GAP / 2
        for row, picture in enumerate(column):
            canvas.picture(Box(left, below + row * (side + _GAP), side, side), picture)
    panel.boundaries(begin - 0.5 for _, begin, _ in stretches[1:])
    for course in courses:
        errors = [100 * step["wrong"] / step["images"] for step in course.steps]
        panel.line(range(len(errors)), errors, _solid(course.style, 0.6))
    for course in courses:
        for _, begin, end in stretches:
            mean = Scores.of_steps(course.steps[begin:end]).mean
            panel.line((begin - 0.4, end - 0.6), (mean, mean), _solid(course.style, 3.0))
    panel.y_axis(nice_ticks(0, 100), "error (%)")
    names = [domain_name(name) for name, _, _ in stretches]
    middles = [(begin + end - 1) / 2 for _, begin, end in stretches]
    panel.x_axis(zip(middles, names, strict=True), upright=False)
    canvas.height = panel.box.top + _HEIGHT + 10 + max(text_width(name, TICK) for name in names)
    return canvas


def _solid(style: LineStyle, width: float) -> LineStyle:
    """The colour of a style without its dashes and marker, which would break up the short line of a domain."""
    return LineStyle(style.colour, "-", "", width)
