"""Error against one parameter, and over random orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctta.plots.style import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Percentage points; on a narrower axis noise would look like an effect.
_LEAST_SPAN = 2.0


@dataclass(frozen=True)
class Curve:
    """Errors of one method at several values of a parameter.

    Args:
        name: Name of the method.
        x: Values of the parameter.
        y: Mean error at each value.
        spread: Standard deviation of each error; 0 if unknown.
        published: Published errors as pairs of value and error.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float]
    published: Sequence[tuple[float, float]] = ()


def draw_curves(curves: Sequence[Curve], label: str, *, log: bool = False) -> Figure:
    """Draw a line per curve, with the published errors dashed in the same colour.

    Args:
        curves: What to draw.
        label: Label of the parameter's axis.
        log: Whether that axis is logarithmic.
    """
    figure, (panel,) = panels()
    for number, curve in enumerate(curves, start=1):
        colour = COLOURS[number % len(COLOURS)]
        panel.errorbar(
            curve.x, curve.y, curve.spread, color=colour, marker="o", markersize=4, capsize=3, label=curve.name
        )
        if curve.published:
            x, y = zip(*curve.published, strict=True)
            panel.plot(x, y, color=colour, linestyle="--", label=f"{curve.name}, the paper's")
    if log:
        panel.set_xscale("log")
    values = sorted({value for curve in curves for value in curve.x})
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.minorticks_off()
    _widen(panel)
    panel.set_xlabel(label)
    panel.set_ylabel("mean error (%)")
    panel.legend(frameon=False)
    return figure


@dataclass(frozen=True)
class Sweep:
    """Errors at several values of a parameter, on the same images.

    Args:
        name: Name of the parameter.
        x: Its values.
        points: Error at each value minus that at the default, in percentage points.
        bars: Standard error of each difference; 0 if unknown.
        default: The default value.
        error: Mean error at the default.
    """

    name: str
    x: Sequence[float]
    points: Sequence[float]
    bars: Sequence[float]
    default: float
    error: float


def draw_sweep(sweep: Sweep) -> Figure:
    """Draw the differences from the default with their standard errors, around a line at the default.

    Args:
        sweep: What to draw.
    """
    figure, (panel,) = panels(size=(6, 3.4))
    places = range(len(sweep.x))
    panel.axhline(0, color="#000000", linewidth=0.8, label=f"default, {sweep.default:g}: {sweep.error:.2f} % error")
    panel.errorbar(
        places,
        sweep.points,
        sweep.bars,
        color=COLOURS[1],
        linestyle="none",
        marker="o",
        markersize=6,
        capsize=5,
        linewidth=1.6,
        label="difference from it, ± standard error",
    )
    panel.set_xticks(places, [f"{value:g}" for value in sweep.x])
    panel.set_xlim(-0.5, len(sweep.x) - 0.5)
    furthest = max(abs(point) + bar for point, bar in zip(sweep.points, sweep.bars, strict=True))
    reach = max(_LEAST_SPAN / 4, 1.15 * furthest)
    panel.set_ylim(-reach, reach)
    panel.set_xlabel(sweep.name)
    panel.set_ylabel("difference in mean error (points)")
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def draw_orders(errors: Sequence[tuple[str, Sequence[float], float]]) -> Figure:
    """Draw a dot per random order and method, and a line at the mean.

    Args:
        errors: For each method its label, the error of each order, and their mean.
    """
    figure, (panel,) = panels()
    for number, (_, values, mean) in enumerate(errors):
        # Spread out sideways, so that equal errors do not hide each other.
        aside = [number + 0.5 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        panel.plot(aside, values, linestyle="none", marker="o", markersize=4, color=COLOURS[1])
        panel.hlines(mean, number - 0.35, number + 0.35, color=COLOURS[3])
    panel.set_xticks(range(len(errors)), [label for label, _, _ in errors], rotation=30, ha="right")
    panel.set_ylabel("mean error (%), a dot per order")
    return figure


def _widen(panel: Any) -> None:
    low, high = panel.get_ylim()
    if high - low < _LEAST_SPAN:
        middle = (low + high) / 2
        panel.set_ylim(middle - _LEAST_SPAN / 2, middle + _LEAST_SPAN / 2)
