"""Errors as figures: their means, by domain, and along the stream."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ctta.bench.figures.along import MOST_POINTS, WIDTH, domain_name, legend_below, mark_domains, short, step_label
from ctta.bench.figures.canvas import panels
from ctta.bench.plots import COLOURS, svg
from ctta.bench.report.canvas import Picture, logs_of, shared_stretches
from ctta.bench.report.runs import Line, Log

Styles = dict[str, dict[str, Any]]


def mean_errors(lines: Sequence[Line]) -> Picture:
    """A bar per row, a dot per seed."""
    labels = [short(line.row.label) for line in lines]
    height = 0.7 + sum(0.2 + 0.13 * label.count("\n") for label in labels)
    figure, (panel,) = panels(size=(WIDTH, height))
    widest = max(max(run.record["mean"] for run in line.runs) for line in lines)
    for place, line in enumerate(lines):
        row = line.row
        colour = COLOURS[0 if row.label == "source" else 1]
        panel.barh(place, row.mean, height=0.66, color=colour, alpha=0.75)
        seeds = [run.record["mean"] for run in line.runs]
        if len(seeds) > 1:
            panel.plot(seeds, [place] * len(seeds), "|", color="black", markersize=5, markeredgewidth=0.8)
        spread = "" if row.spread is None else f" ± {row.spread:.1f}"
        panel.text(max(row.mean, *seeds) + 0.015 * widest, place, f"{row.mean:.1f}{spread}", va="center", fontsize=8)
    panel.set_yticks(range(len(lines)), labels)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(lines) - 0.4, -0.6)
    panel.set_xlim(0, 1.3 * widest or 1)
    panel.grid(visible=False)
    panel.set_xlabel("mean error over domains (%)")
    several = any(len(line.runs) > 1 for line in lines)
    return Picture(
        svg(figure, "Mean error"),
        "Mean of the errors of all domains in percent; lower is better."
        + (" Ticks are seeds, ± is their standard deviation." if several else ""),
    )


def domain_errors(lines: Sequence[Line], styles: Styles, *, in_order: bool) -> Picture:
    """A line per row over the domains, and how far each is from the median row where there are several."""
    domains = list(lines[0].row.errors)
    of = {line.row.label: [line.row.errors.get(domain, float("nan")) for domain in domains] for line in lines}
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
    return Picture(
        svg(figure, "Error by domain"),
        f"Error in each domain{' in the order of the stream' if in_order else ''}; lower is better."
        + (" Below, its difference from the median row, without what is far off." if several else ""),
    )


def _draw_differences(panel: Any, of: dict[str, list[float]], styles: Styles) -> None:
    middle = [statistics.median(errors) for errors in zip(*of.values(), strict=True)]
    apart = {name: [e - m for e, m in zip(errors, middle, strict=True)] for name, errors in of.items()}
    # A row that is far off would press the others into one line.
    usual = sorted(abs(value) for values in apart.values() for value in values)
    limit = max(1.0, 3 * usual[int(0.75 * (len(usual) - 1))])
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


def running_errors(lines: Sequence[Line], styles: Styles) -> Picture:
    """The error of all answers so far, along the stream."""
    figure, (panel,) = panels(size=(WIDTH, 4.0))
    handles = []
    for line in lines:
        handles += panel.plot(*_so_far(logs_of(line)), **_fine(styles[line.row.label]) | {"marker": ""})
    panel.set_ylim(bottom=0)
    panel.set_ylabel("error so far (%)")
    panel.set_xlabel(step_label(logs_of(lines[0])[0].steps))
    stretches = shared_stretches([log for line in lines for log in logs_of(line)])
    marked = stretches is not None and mark_domains(panel, stretches, names=True)
    legend_below(figure, handles, [short(line.row.label) for line in lines])
    return Picture(
        svg(figure, "Error so far"),
        "Percent wrong of all answers up to a step, over all seeds."
        + (" Vertical lines: the domain changes." if marked else ""),
    )


def _so_far(logs: Sequence[Log]) -> tuple[list[int], list[float]]:
    by_step = list(zip(*(log.steps for log in logs), strict=False))
    wrong = list(accumulate(sum(step["wrong"] for step in steps) for steps in by_step))
    images = list(accumulate(sum(step["images"] for step in steps) for steps in by_step))
    every = -(-len(by_step) // MOST_POINTS)
    # Counted from the end, so that the last point is the error of the whole stream.
    kept = range((len(by_step) - 1) % every, len(by_step), every)
    return list(kept), [100 * wrong[i] / images[i] for i in kept]
