"""Error against cost: a dot per method, and a line through those that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ctta.plots.canvas import Canvas, Plot
from ctta.plots.elements import LineStyle
from ctta.plots.panel import TICK, Box, Panel, nice_ticks
from ctta.plots.text import text_width

_FRONT = LineStyle("#0072B2", marker="o")
_BEATEN = LineStyle("#9a9a9a", marker="o")
_DOT = 2.8
_MARGIN = 0.04
#: Costs that may be labelled on the axis, in forward passes.
_COSTS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000)


class Method(NamedTuple):
    """What a method achieves, and at what cost.

    Args:
        name: Its label.
        cost: The cost of a step in forward passes.
        error: Its error in percent.
    """

    name: str
    cost: float
    error: float


class _Rectangle(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: _Rectangle) -> float:
        """The area that two rectangles share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)


def frontier(methods: Sequence[Method]) -> list[Method]:
    """Return the methods that no other beats, cheapest first: every cheaper or equally cheap one has a higher error.

    Args:
        methods: The methods to compare.
    """
    best: list[Method] = []
    for method in sorted(methods, key=lambda method: (method.cost, method.error)):
        if not best or method.error < best[-1].error:
            best.append(method)
    return best


def plot_error_by_cost(methods: Sequence[Method], *, width: float = 7.0, height: float = 300.0) -> Plot:
    """Plot the error of methods against the cost of a step, on a logarithmic axis.

    Args:
        methods: The methods. A few far above the others take the room from them.
        width: Width of the plot in inches.
        height: Height of the panel in points.
    """
    costs = [math.log10(method.cost) for method in methods]
    errors = [method.error for method in methods]
    canvas = Canvas(width, height + 44)
    box = Box(44, 6, canvas.width - 54, height)
    panel = canvas.add(Panel(box, _widened(costs), _widened(errors)))
    low, high = panel.x
    panel.x_axis(
        [(math.log10(cost), str(cost)) for cost in _COSTS if low <= math.log10(cost) <= high],
        "cost of a step, in forward passes of the network",
    )
    panel.y_axis(nice_ticks(*panel.y), "error (%)")
    front = frontier(methods)
    panel.line([math.log10(m.cost) for m in front], [m.error for m in front], LineStyle(_FRONT.colour, width=1.0))
    for style, members in ((_BEATEN, [m for m in methods if m not in front]), (_FRONT, front)):
        panel.dots([(math.log10(m.cost), m.error) for m in members], style, _DOT)
    _label(panel, methods)
    return Plot(
        canvas,
        "Error against cost",
        "Mean error and CPU time of a step. The line joins the methods that no other beats in both.",
    )


def _widened(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis that leaves some room around its values."""
    low, high = min(values), max(values)
    room = max(2 * _MARGIN * (high - low), 0.02)
    return low - room, high + room


def _label(panel: Panel, methods: Sequence[Method]) -> None:
    """Write the name of each method beside its dot, where it covers least of the dots and the other names."""
    per_x, per_y = panel.box.width / (panel.x[1] - panel.x[0]), panel.box.height / (panel.y[1] - panel.y[0])
    places = [((math.log10(m.cost) - panel.x[0]) * per_x, (panel.y[1] - m.error) * per_y) for m in methods]
    taken = [_Rectangle(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in places]
    room = _Rectangle(0, 0, panel.box.width, panel.box.height)
    for method, (x, y) in zip(methods, places, strict=True):
        wide = text_width(method.name, TICK)
        corners = [
            (x + side, y + 0.5 * TICK * down)
            for down in (0, -1.6, 1.6, -2.8, 2.8)
            for side in (_DOT + 2, -_DOT - 2 - wide)
        ]
        options = [_Rectangle(left, middle - TICK / 2, left + wide, middle + TICK / 2) for left, middle in corners]
        chosen = min(options, key=lambda option: _covered(option, taken, room))
        taken.append(chosen)
        middle = (chosen.top + chosen.bottom) / 2
        panel.write(panel.x[0] + chosen.left / per_x, panel.y[1] - middle / per_y, method.name)


def _covered(option: _Rectangle, taken: Sequence[_Rectangle], room: _Rectangle) -> float:
    """The area of a label that lies on others or outside the panel."""
    area = (option.right - option.left) * (option.bottom - option.top)
    return sum(option.overlap(other) for other in taken) + 2 * (area - option.overlap(room))
