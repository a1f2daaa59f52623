"""Errors: their means, by domain, and along the stream."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ctta.bench.compare import Row
from ctta.bench.steps import StepFacts
from ctta.plots.stream_axis import (
    MOST_POINTS,
    WIDTH,
    Stretch,
    domain_name,
    legend_below,
    mark_domains,
    short,
    step_label,
    stretches_of,
)
from ctta.plots.style import COLOURS, Plot, panels

#: Line styles by the label of a row.
Styles = dict[str, dict[str, Any]]
#: The label of a row, and the steps of each of its runs.
Logged = tuple[str, list[list[StepFacts]]]


def plot_mean_errors(rows: Sequence[Row]) -> Plot:
    """Plot a bar per row and a tick per seed.

    Args:
        rows: One bar each.
    """
    labels = [short(row.label) for row in rows]
    height = 0.7 + sum(0.2 + 0.13 * label.count("\n") for label in labels)
    figure, (panel,) = panels(size=(WIDTH, height))
    widest = max(max(record["mean"] for record in row.records) for row in rows)
    for place, row in enumerate(rows):
        colour = COLOURS[0 if row.label == "source" else 1]
        panel.barh(place, row.mean, height=0.66, color=colour, alpha=0.75)
        seeds = [record["mean"] for record in row.records]
        if len(seeds) > 1:
            panel.plot(seeds, [place] * len(seeds), "|", color="black", markersize=5, markeredgewidth=0.8)
        spread = "" if row.spread is None else f" ± {row.spread:.1f}"
        panel.text(max(row.mean, *seeds) + 0.015 * widest, place, f"{row.mean:.1f}{spread}", va="center", fontsize=8)
    panel.set_yticks(range(len(rows)), labels)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set_xlim(0, 1.3 * widest or 1)
    panel.grid(visible=False)
    panel.set_xlabel("mean error over domains (%)")
    several = any(len(row.records) > 1 for row in rows)
    return Plot(
        figure,
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
    of = {row.label: [row.errors.get(domain, float("nan")) for domain in domains] for row in rows}
    several = len(of) > 2
    size = (WIDTH, 5.4 if several else 3.6)
    figure, found = panels(1 + several, size=size, sharex=True, height_ratios=(1.35, 1)[: 1 + several])
    places = range(len(domains))
    handles = [found[0].plot(places, of[name], **_fine(styles[name]))[0] for name in of]
    found[0].set_ylim(bottom=0)
    found[0].set_ylabel("error (%)")
    if several:
        _draw_differences(found[1], of, styles)
    found[-1].set_xticks(places, [domain_name(domain) for domain in domains], rotation=90)
    figure.align_ylabels(found)
    legend_below(figure, handles, [short(name) for name in of])
    return Plot(
        figure,
        "Error by domain",
        f"Error in each domain{' in the order of the stream' if in_order else ''}; lower is better."
        + (" Below, its difference from the median row, without what is far off." if several else ""),
    )


def _draw_differences(panel: Any, of: dict[str, list[float]], styles: Styles) -> None:
    middle = [statistics.median(errors) for errors in zip(*of.values(), strict=True)]
    apart = {name: [e - m for e, m in zip(errors, middle, strict=True)] for name, errors in of.items()}
    # A row that is far off would flatten all others.
    distances = sorted(abs(value) for values in apart.values() for value in values)
    limit = max(1.0, 3 * distances[int(0.75 * (len(distances) - 1))])
    near = {name: v for name, v in apart.items() if statistics.median(abs(value) for value in v) <= limit}
    for name, values in near.items():
        panel.plot(range(len(values)), values, **_fine(styles[name]))
    furthest = 1.1 * max(abs(value) for values in near.values() for value in values)
    reach = min(2 * limit, max(1.0, furthest))
    panel.set_ylim(-reach, reach)
    panel.axhline(0, color="black", linewidth=0.6)
    panel.set_ylabel("difference from the\nmedian row (points)")


def _fine(style: dict[str, Any]) -> dict[str, Any]:
    return style | {"linewidth": 1.1, "markersize": 3}


def plot_running_errors(rows: Sequence[Logged], styles: Styles) -> Plot:
    """Plot the error over all predictions so far, along the stream.

    Args:
        rows: Label and step logs of each row.
        styles: Line styles by label.
    """
    figure, (panel,) = panels(size=(WIDTH, 4.0))
    handles = []
    for label, logs in rows:
        handles += panel.plot(*_so_far(logs), **_fine(styles[label]) | {"marker": ""})
    panel.set_ylim(bottom=0)
    panel.set_ylabel("error so far (%)")
    panel.set_xlabel(step_label(rows[0][1][0]))
    stretches = _shared_stretches([log for _, logs in rows for log in logs])
    marked = stretches is not None and mark_domains(panel, stretches, names=True)
    legend_below(figure, handles, [short(label) for label, _ in rows])
    return Plot(
        figure,
        "Error so far",
        "Percent wrong of all answers up to a step, over all seeds."
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
    every = -(-len(by_step) // MOST_POINTS)
    # Counted from the end, so that the last point is the error of the whole stream.
    kept = range((len(by_step) - 1) % every, len(by_step), every)
    return list(kept), [100 * wrong[i] / images[i] for i in kept]
