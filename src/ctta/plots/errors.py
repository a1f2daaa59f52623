"""Errors: their means, by domain, and along the stream."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ctta.bench.compare import Row
from ctta.bench.steps import StepFacts
from ctta.plots.canvas import Canvas, Plot
from ctta.plots.elements import LineStyle
from ctta.plots.panel import LABEL, TICK, Box, Panel, nice_ticks
from ctta.plots.rows import label_margin, row_heights, row_ticks
from ctta.plots.stream_axis import Stretch, mark_domains, room_for_names, steps_axis, steps_per_point, stretches_of
from ctta.plots.style import COLOURS
from ctta.plots.text import domain_name, short, text_width

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
    panel.draw_bars([row.mean for row in rows], [COLOURS[0 if row.label == "source" else 1] for row in rows])
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


def plot_domain_errors(rows: Sequence[Row], styles: Styles, *, in_order: bool) -> Plot:
    """Plot a line per row over the domains and, with three rows or more, their distance from the median row.

    Args:
        rows: One line each.
        styles: Line styles by label.
        in_order: Whether the domains are in the order of the stream.
    """
    domains = list(rows[0].errors)
    of = {row.label: [row.errors.get(domain, math.nan) for domain in domains] for row in rows}
    several = len(of) > 2
    canvas = Canvas()
    width, ends = canvas.width - LEFT - _RIGHT, (-0.3, len(domains) - 0.7)
    top = _above_zero([error for errors in of.values() for error in errors])
    above = canvas.add(Panel(Box(LEFT, 6, width, 165), ends, (0, top)))
    for name, errors in of.items():
        above.line(range(len(domains)), errors, styles[name])
    above.y_axis(nice_ticks(0, top), "error (%)")
    lowest = above
    if several:
        lowest = canvas.add(_differences(of, styles, Box(LEFT, 186, width, 122), ends))
        above.x_axis((index, "") for index in range(len(domains)))
    names = [domain_name(domain) for domain in domains]
    lowest.x_axis(enumerate(names), upright=False)
    bottom = lowest.box.top + lowest.box.height + 12 + max(text_width(name, TICK) for name in names)
    canvas.height = canvas.legend([(short(name), styles[name]) for name in of], bottom) + 4
    return Plot(
        canvas,
        "Error by domain",
        f"Error in each domain{' in the order of the stream' if in_order else ''}; lower is better."
        + (" Below, its difference from the median row, without what is far off." if several else ""),
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
    high = _above_zero([error for _, errors in curves.values() for error in errors])
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


def _differences(of: Mapping[str, list[float]], styles: Styles, box: Box, ends: tuple[float, float]) -> Panel:
    middle = [statistics.median(errors) for errors in zip(*of.values(), strict=True)]
    apart = {name: [e - m for e, m in zip(errors, middle, strict=True)] for name, errors in of.items()}
    # A row that is far off would flatten all others.
    distances = sorted(abs(value) for values in apart.values() for value in values if not math.isnan(value))
    limit = max(1.0, 3 * distances[int(0.75 * (len(distances) - 1))] if distances else 0.0)
    near = {name: v for name, v in apart.items() if statistics.median(abs(value) for value in v) <= limit}
    furthest = 1.1 * max((abs(v) for values in near.values() for v in values if not math.isnan(v)), default=0.0)
    reach = min(2 * limit, max(1.0, furthest))
    panel = Panel(box, ends, (-reach, reach))
    for name, values in near.items():
        panel.line(range(len(values)), values, styles[name])
    panel.across(0, LineStyle("#000000", width=0.6))
    panel.y_axis(nice_ticks(-reach, reach), "from the median (points)")
    return panel


def _above_zero(values: Sequence[float]) -> float:
    """The upper end of an axis from 0 on which all values fit."""
    return 1.05 * max([value for value in values if not math.isnan(value)], default=1.0) or 1.0


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
