"""Errors by domain: a dot per row and domain, and a grid of the differences between rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ctta.bench.compare import Row
from ctta.plots.canvas import WIDTH, Area, Canvas, Dot, Plot, Sample
from ctta.plots.elements import LineStyle
from ctta.plots.panel import TICK, Box, Panel, above_zero, nice_ticks
from ctta.plots.rows import label_margin, row_ticks
from ctta.plots.text import domain_name, short, text_width

#: Style of rows that are not pointed out.
_PALE = LineStyle("#c3d5e6", marker="o")
_LINE = 13.5
_CELL = 14.0
#: Blue is better than the median row, orange worse; distinct with any kind of colour vision.
_BETTER, _WORSE, _EQUAL = (0x00, 0x62, 0x9B), (0xC8, 0x52, 0x00), (0xF2, 0xF2, 0xF2)


def plot_domain_errors(
    rows: Sequence[Row], styles: Mapping[str, LineStyle], *, in_order: bool, width: float = WIDTH
) -> Plot:
    """Plot a dot per row in every domain and for their mean; the source, batch norm and the best row are coloured.

    Args:
        rows: The rows of a table.
        styles: Line styles by label.
        in_order: Whether the domains are in the order of the stream.
        width: Width of the plot in inches.
    """
    domains = list(rows[0].errors)
    chosen = pointed_out(rows)
    names = [*(domain_name(domain) for domain in domains), "mean"]
    # The mean is set apart.
    places = [*map(float, range(len(domains))), len(domains) + 0.4]
    left = 8 + max(text_width(name, TICK) for name in names)
    canvas = Canvas(width)
    height = _LINE * (places[-1] + 1.2)
    errors = {row.label: [*(row.errors.get(domain, math.nan) for domain in domains), row.mean] for row in rows}
    right = above_zero(error for found in errors.values() for error in found)
    box = Box(left, 4, canvas.width - left - 8, height)
    panel = canvas.add(Panel(box, (0, right), (places[-1] + 0.6, -0.6)))
    panel.y_axis(zip(places, names, strict=True))
    panel.x_axis(nice_ticks(0, right), "error (%)")
    others = [row.label for row in rows if row.label not in chosen]
    for label in others:
        panel.dots(zip(errors[label], places, strict=True), _PALE, 2.4)
    for number, label in enumerate(chosen):
        # Offset vertically, so that equal errors do not hide each other.
        aside = 0.66 * ((number + 0.5) / len(chosen) - 0.5)
        panel.dots(zip(errors[label], (place + aside for place in places), strict=True), styles[label], 3.0)
    legend: list[tuple[str, Sample]] = [(short(label), Dot(styles[label], 3.0)) for label in chosen]
    if others:
        legend.append((f"{len(others)} other row{'s' if len(others) != 1 else ''}", Dot(_PALE, 2.4)))
    canvas.height = canvas.legend(legend, box.top + height + 38) + 4
    return Plot(
        canvas,
        "Error by domain",
        f"Error in each domain{' in the order of the stream' if in_order else ''}, and the mean; lower is better.",
    )


def pointed_out(rows: Sequence[Row]) -> list[str]:
    """The labels of the source, of plain batch norm, and of the row with the lowest mean error, if they exist.

    Args:
        rows: The rows of a table.
    """
    known = [row.label for name in ("source", "bn") for row in rows if row.label == name]
    return list(dict.fromkeys([*known, min(rows, key=lambda row: row.mean).label]))


def plot_differences(rows: Sequence[Row]) -> Plot:
    """Plot how far every row is from the median row, in each domain and for the mean, as a grid of colours.

    Args:
        rows: At least three rows of a table.
    """
    domains = list(rows[0].errors)
    errors = [[*(row.errors.get(domain, math.nan) for domain in domains), row.mean] for row in rows]
    middle = [_median(column) for column in zip(*errors, strict=True)]
    apart = [[error - m for error, m in zip(line, middle, strict=True)] for line in errors]
    limit = _limit(apart)
    names = [*(domain_name(domain) for domain in domains), "mean"]
    canvas = Canvas()
    left = label_margin(rows)
    distance = max(_CELL, *(1.25 * TICK * (label.count("\n") + 1) for _, label in row_ticks(rows)))
    height = distance * len(rows)
    box = Box(left, 4, canvas.width - left - 4, height)
    panel = canvas.add(Panel(box, (-0.5, len(names) - 0.5), (len(rows) - 0.5, -0.5)))
    panel.draw_cells(
        apart,
        [[_colour(value / limit) for value in line] for line in apart],
        [
            [f"{row.label}, {name}: {value:+.1f}" for name, value in zip(names, line, strict=True)]
            for row, line in zip(rows, apart, strict=True)
        ],
    )
    panel.y_axis(row_ticks(rows), grid=False)
    panel.x_axis(enumerate(names), upright=False)
    bottom = box.top + height + 14 + max(text_width(name, TICK) for name in names)
    scale: list[tuple[str, Sample]] = [
        (f"−{limit:.1f} or less", Area(_colour(-1))),
        ("as the median", Area(_colour(0))),
        (f"+{limit:.1f} or more", Area(_colour(1))),
    ]
    canvas.height = canvas.legend(scale, bottom) + 4
    return Plot(
        canvas,
        "Difference from the median row",
        "Error minus the median of these rows, in points; blue is better, orange worse.",
    )


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def _limit(apart: Sequence[Sequence[float]]) -> float:
    """The difference that gets the strongest colour; an outlier must not make all other rows pale."""
    distances = sorted(abs(value) for line in apart for value in line if not math.isnan(value))
    return max(0.5, 1.5 * distances[int(0.75 * (len(distances) - 1))]) if distances else 0.5


def _colour(share: float) -> str:
    """A colour between better and worse."""
    if math.isnan(share):
        return "none"
    end = _WORSE if share > 0 else _BETTER
    part = min(1.0, abs(share))
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(_EQUAL, end, strict=True))
