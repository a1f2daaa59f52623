"""Errors: their means, and along the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from ctta.bench.compare import Row
from ctta.bench.steps import StepFacts
from ctta.plots.canvas import Canvas, Plot
from ctta.plots.elements import LineStyle
from ctta.plots.panel import LABEL, TICK, Box, Panel, above_zero, nice_ticks
from ctta.plots.rows import label_margin, row_heights, row_ticks
from ctta.plots.stream_axis import Stretch, mark_domains, room_for_names, steps_axis, steps_per_point, stretches_of
from ctta.plots.style import COLOURS
from ctta.plots.text import short

#: Line styles by the label of a row.
Styles = Mapping[str, LineStyle]
#: The label of a row, and the steps of each of its runs.
Logged = tuple[str, list[list[StepFacts]]]

#: Points left of a panel, for the labels of its axis.
LEFT = 44.0
_RIGHT = 8.0


def plot_mean_errors(rows: Sequence[Row]) -> Plot:
    """Plot a bar per row and a stroke per seed.

    Args:
        rows: One bar each.
    """
    height = row_heights(rows)
    canvas = Canvas(height=height + 36)
    left = label_margin(rows)
    widest = max(record.mean for row in rows for record in row.records)
    right = 1.3 * widest or 1.0
    panel = canvas.add(Panel(Box(left, 4, canvas.width - left - 6, height), (0, right), (len(rows) - 0.4, -0.6)))
    panel.draw_bars(
        [row.mean for row in rows], [COLOURS[0 if row.records[0].spec.method == "source" else 1] for row in rows]
    )
    for index, row in enumerate(rows):
        seeds = [record.mean for record in row.records]
        if len(seeds) > 1:
            panel.strokes([(seed, index) for seed in seeds], "#000000", 5)
        spread = "" if row.spread is None else f" ± {row.spread:.1f}"
        panel.write(max(row.mean, *seeds) + 0.015 * widest, index, f"{row.mean:.1f}{spread}")
    panel.x_axis(nice_ticks(0, right), "mean error over domains (%)")
    panel.y_axis(row_ticks(rows), grid=False)
    several = any(len(row.records) > 1 for row in rows)
    return Plot(
        canvas,
        "Mean error",
        "Mean of the errors of all domains in percent; lower is better."
        + (" Ticks are seeds, ± is their standard deviation." if several else ""),
    )


def plot_running_errors(rows: Sequence[Logged], styles: Styles) -> Plot:
    """Plot the error over all predictions so far, along the stream.

    Args:
        rows: Label and step logs of each row.
        styles: Line styles by label.
    """
    canvas = Canvas()
    curves = {label: _so_far(logs) for label, logs in rows}
    stretches = _shared_stretches([log for _, logs in rows for log in logs])
    names = room_for_names(stretches)
    longest = max(len(log) for _, logs in rows for log in logs)
    high = above_zero(error for _, errors in curves.values() for error in errors)
    box = Box(LEFT, 6 + names, canvas.width - LEFT - _RIGHT, 190)
    panel = canvas.add(Panel(box, (-0.5, longest - 0.5), (0, high)))
    for label, (places, errors) in curves.items():
        panel.line(places, errors, styles[label]._replace(marker=""))
    panel.y_axis(nice_ticks(0, high), "error so far (%)")
    steps_axis(panel, rows[0][1][0])
    marked = stretches is not None and mark_domains(panel, stretches, names=True)
    bottom = box.top + box.height + 4 + 1.2 * TICK + 1.3 * LABEL + 10
    canvas.height = canvas.legend([(short(label), styles[label]) for label, _ in rows], bottom) + 4
    return Plot(
        canvas,
        "Error so far",
        "Percentage of incorrect predictions up to a step, over all seeds."
        + (" Vertical lines: the domain changes." if marked else ""),
    )


def _shared_stretches(logs: Sequence[Sequence[StepFacts]]) -> list[Stretch] | None:
    """The stretches of the stream, if all runs saw the same ones."""
    first = stretches_of(logs[0])
    return first if all(stretches_of(log) == first for log in logs[1:]) else None


def _so_far(logs: Sequence[Sequence[StepFacts]]) -> tuple[list[int], list[float]]:
    by_step = list(zip(*logs, strict=False))
    wrong = list(accumulate(sum(step["wrong"] for step in steps) for steps in by_step))
    images = list(accumulate(sum(step["images"] for step in steps) for steps in by_step))
    every = steps_per_point(logs[0][: len(by_step)])
    # Counted from the end, so that the last point is the error of the whole stream.
    kept = range((len(by_step) - 1) % every, len(by_step), every)
    return list(kept), [100 * wrong[i] / images[i] for i in kept]
