"""Errors along one parameter, and over random orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ctta.bench.figures.canvas import panels
from ctta.bench.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.experiments.cells import Outcome


def draw_lines(parameter: str, label: str, *, log: bool = False) -> Callable[[Sequence[Outcome]], Figure]:
    """The drawing of error against a parameter of the cells: a line per method, the paper's dashed beside it."""

    def draw(outcomes: Sequence[Outcome]) -> Figure:
        figure, (panel,) = panels()
        by_method: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            by_method.setdefault(outcome.cell.method, []).append(outcome)
        for number, (method, mine) in enumerate(by_method.items(), start=1):
            x = [_value(outcome, parameter) for outcome in mine]
            y, spread = [outcome.mean for outcome in mine], [outcome.spread or 0.0 for outcome in mine]
            colour = COLOURS[number % len(COLOURS)]
            panel.errorbar(x, y, spread, color=colour, marker="o", markersize=4, capsize=3, label=method)
            told = [(v, o.published.mean) for v, o in zip(x, mine, strict=True) if o.published is not None]
            if told:
                panel.plot(*zip(*told, strict=True), color=colour, linestyle="--", label=f"{method}, the paper's")
        if log:
            panel.set_xscale("log")
        values = sorted({_value(outcome, parameter) for outcome in outcomes})
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.minorticks_off()
        _widen(panel)
        panel.set_xlabel(label)
        panel.set_ylabel("mean error (%)")
        panel.legend(frameon=False)
        return figure

    return draw


def draw_orders(outcomes: Sequence[Outcome]) -> Figure:
    """A dot per random order and method, the mean as a line."""
    figure, (panel,) = panels()
    for number, outcome in enumerate(outcomes):
        errors = outcome.errors
        # Side by side, so that equal errors do not hide each other.
        aside = [number + 0.5 * ((i + 0.5) / len(errors) - 0.5) for i in range(len(errors))]
        panel.plot(aside, errors, linestyle="none", marker="o", markersize=4, color=COLOURS[1])
        panel.hlines(outcome.mean, number - 0.35, number + 0.35, color=COLOURS[3])
    panel.set_xticks(range(len(outcomes)), [o.cell.label for o in outcomes], rotation=30, ha="right")
    panel.set_ylabel("mean error (%), a dot per order")
    return figure


def _widen(panel: Any) -> None:
    """Show a span of at least two points: on a narrower axis chance would look like an effect."""
    low, high = panel.get_ylim()
    if high - low < 2.0:
        middle = (low + high) / 2
        panel.set_ylim(middle - 1.0, middle + 1.0)


def _value(outcome: Outcome, parameter: str) -> Any:
    if hasattr(outcome.cell, parameter):
        return getattr(outcome.cell, parameter)
    return outcome.records[0]["settings"][parameter]
