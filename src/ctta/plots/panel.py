"""A panel with two axes, drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ctta.plots.elements import MARKERS, LineStyle, decimal, dot_at, markers, stroke, text
from ctta.plots.text import escaped, text_width

EDGE = "#d9d9d9"
#: Font sizes in points.
LABEL, TICK = 8.5, 8.0


class Box(NamedTuple):
    """A rectangle in points; y grows downwards."""

    left: float
    top: float
    width: float
    height: float


class Panel:
    """A rectangle with a horizontal and a vertical axis.

    What is drawn is also kept as numbers: ``lines`` holds the points of each line, ``bars`` the lengths of each set of
    bars, ``stairs`` the heights of each histogram, ``marks`` each set of dots, ``cells`` each grid, and ``texts`` every
    text.

    Args:
        box: The rectangle inside the axes, in points.
        x: Lower and upper end of the horizontal axis.
        y: Lower and upper end of the vertical axis; a lower end above the upper one reverses the axis.
        log_y: Whether the vertical axis is logarithmic.
    """

    def __init__(self, box: Box, x: tuple[float, float], y: tuple[float, float], *, log_y: bool = False) -> None:
        self.box = box
        self.x = x
        self.y = y
        self.log_y = log_y
        self.lines: list[list[tuple[float, float]]] = []
        self.bars: list[list[float]] = []
        self.stairs: list[list[float]] = []
        self.marks: list[list[tuple[float, float]]] = []
        self.cells: list[list[list[float]]] = []
        self.texts: list[str] = []
        self._behind: list[str] = []
        self._inside: list[str] = []
        self._outside: list[str] = []

    def line(self, xs: Iterable[float], ys: Iterable[float], style: LineStyle) -> None:
        """Draw a line through points; it is interrupted at NaN.

        Args:
            xs: Horizontal positions.
            ys: Vertical positions.
            style: Colour, dashes, marker and width.
        """
        points = list(zip(xs, ys, strict=True))
        self.lines.append(points)
        parts: list[list[str]] = [[]]
        for x, y in points:
            if math.isnan(y):
                parts.append([])
            else:
                parts[-1].append(f"{decimal(self._px(x))} {decimal(self._py(y))}")
        path = "".join(f"M{'L'.join(part)}" for part in parts if part)
        self._inside.append(stroke(path, style))
        if marker := MARKERS[style.marker]:
            self._inside.append(markers([point for part in parts for point in part], marker, style.colour))

    def dots(self, points: Iterable[tuple[float, float]], style: LineStyle, size: float = 2.6) -> None:
        """Draw a marker at every point; points with NaN are left out.

        Args:
            points: Horizontal and vertical positions.
            style: Marker and colour.
            size: Half the side of a marker in points.
        """
        known = [(x, y) for x, y in points if not (math.isnan(x) or math.isnan(y))]
        self.marks.append(known)
        self._inside.append("".join(dot_at(self._px(x), self._py(y), style, size) for x, y in known))

    def draw_cells(
        self, values: Sequence[Sequence[float]], colours: Sequence[Sequence[str]], tips: Sequence[Sequence[str]]
    ) -> None:
        """Draw a grid of coloured cells of side 1, the first row at the top; cells with NaN are left out.

        Args:
            values: The number behind each cell, by row and column.
            colours: The colour of each cell.
            tips: What a browser shows when the pointer rests on each cell.
        """
        self.cells.append([list(line) for line in values])
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                if math.isnan(value):
                    continue
                left, right = self._px(column - 0.47), self._px(column + 0.47)
                top, bottom = self._py(row - 0.46), self._py(row + 0.46)
                self._inside.append(
                    f'<rect x="{decimal(left)}" y="{decimal(top)}" width="{decimal(right - left)}" '
                    f'height="{decimal(bottom - top)}" fill="{colours[row][column]}">'
                    f"<title>{escaped(tips[row][column])}</title></rect>"
                )

    def draw_bars(self, lengths: Sequence[float], colours: Sequence[str]) -> None:
        """Draw horizontal bars from 0, the first at the top.

        Args:
            lengths: Lengths of the bars.
            colours: A colour for each bar.
        """
        self.bars.append(list(lengths))
        for index, (length, colour) in enumerate(zip(lengths, colours, strict=True)):
            top, bottom = self._py(index - 0.33), self._py(index + 0.33)
            left, right = self._px(0), self._px(length)
            self._inside.append(
                f'<rect x="{decimal(left)}" y="{decimal(top)}" width="{decimal(right - left)}" '
                f'height="{decimal(bottom - top)}" fill="{colour}" fill-opacity=".75"/>'
            )

    def strokes(self, points: Iterable[tuple[float, float]], colour: str, length: float) -> None:
        """Draw short vertical strokes.

        Args:
            points: Their centres.
            colour: Their colour.
            length: Their length in points.
        """
        path = "".join(
            f"M{decimal(self._px(x))} {decimal(self._py(y) - length / 2)}v{decimal(length)}" for x, y in points
        )
        self._inside.append(stroke(path, LineStyle(colour, width=0.8)))

    def draw_stairs(self, heights: Sequence[float], edges: Sequence[float], colour: str, *, fill: bool) -> None:
        """Draw a histogram.

        Args:
            heights: Height of each bin.
            edges: Edges of the bins.
            colour: Colour of the area or of its outline.
            fill: Whether to fill the area.
        """
        self.stairs.append(list(heights))
        bottom = self._py(self.y[0])
        path = f"M{decimal(self._px(edges[0]))} {decimal(bottom)}"
        for height, edge in zip(heights, edges[1:], strict=True):
            path += f"V{decimal(self._py(height))}H{decimal(self._px(edge))}"
        path += f"V{decimal(bottom)}"
        self._inside.append(
            f'<path d="{path}" fill="{colour}" fill-opacity=".8"/>' if fill else stroke(path, LineStyle(colour))
        )

    def across(self, y: float, style: LineStyle) -> None:
        """Draw a horizontal line through the whole panel.

        Args:
            y: Its position.
            style: How to draw it.
        """
        self.line(self.x, (y, y), style)

    def boundaries(self, xs: Iterable[float]) -> None:
        """Draw thin vertical lines behind everything else.

        Args:
            xs: Their positions.
        """
        top = decimal(self.box.top)
        path = "".join(f"M{decimal(self._px(x))} {top}v{decimal(self.box.height)}" for x in xs)
        self._behind.append(stroke(path, LineStyle(EDGE, width=0.7)))

    def write(self, x: float, y: float, words: str) -> None:
        """Write a text to the right of a point.

        Args:
            x: Horizontal position of the point.
            y: Vertical position.
            words: The text.
        """
        self.texts.append(words)
        self._outside.append(text(self._px(x), self._py(y) + 0.35 * TICK, words, TICK))

    def title(self, words: str, size: float = 7.5) -> None:
        """Write a title of one or several lines above the panel.

        Args:
            words: The title.
            size: Font size in points.
        """
        self.texts.append(words)
        above = self.box.top - 4 - 1.2 * size * words.count("\n")
        self._outside.append(text(self.box.left + self.box.width / 2, above, words, size, anchor="middle"))

    def x_axis(self, ticks: Iterable[tuple[float, str]], label: str = "", *, upright: bool = True) -> None:
        """Draw the horizontal axis at the bottom.

        Args:
            ticks: Positions and their labels.
            label: Label of the axis.
            upright: Whether tick labels are horizontal; otherwise they are rotated by 90 degrees.
        """
        bottom, lowest = self.box.top + self.box.height, 0.0
        self._outside.append(stroke(f"M{decimal(self.box.left)} {decimal(bottom)}h{decimal(self.box.width)}", _FRAME))
        for x, words in ticks:
            self.texts.append(words)
            place = self._px(x)
            self._outside.append(stroke(f"M{decimal(place)} {decimal(bottom)}v3", _FRAME))
            if upright:
                self._outside.append(text(place, bottom + 4 + TICK, words, TICK, anchor="middle"))
                lowest = max(lowest, 4 + 1.2 * TICK)
            else:
                turned = text(place + 0.35 * TICK, bottom + 5, words, TICK, anchor="end", turn=-90)
                self._outside.append(turned)
                lowest = max(lowest, 5 + text_width(words, TICK))
        if label:
            middle = self.box.left + self.box.width / 2
            self._outside.append(text(middle, bottom + lowest + 1.3 * LABEL, label, LABEL, anchor="middle"))

    def names_above(self, names: Iterable[tuple[float, str]]) -> None:
        """Write names above the panel, rotated by 90 degrees.

        Args:
            names: Positions and names.
        """
        for x, name in names:
            self.texts.append(name)
            self._outside.append(text(self._px(x) + 0.35 * 7.5, self.box.top - 3, name, 7.5, turn=-90))

    def y_axis(self, ticks: Iterable[tuple[float, str]], label: str = "", *, grid: bool = True) -> None:
        """Draw the vertical axis on the left.

        Args:
            ticks: Positions and their labels.
            label: Label of the axis, written at the left edge of the drawing; it may have two lines.
            grid: Whether to draw a line across the panel at each tick.
        """
        left = self.box.left
        self._outside.append(stroke(f"M{decimal(left)} {decimal(self.box.top)}v{decimal(self.box.height)}", _FRAME))
        for y, words in ticks:
            self.texts.append(words)
            place = self._py(y)
            lines = words.count("\n")
            if grid:
                self._behind.append(
                    stroke(f"M{decimal(left)} {decimal(place)}h{decimal(self.box.width)}", LineStyle(EDGE, width=0.6))
                )
                self._outside.append(stroke(f"M{decimal(left)} {decimal(place)}h-3", _FRAME))
            above = place + 0.35 * TICK - 0.6 * TICK * lines
            self._outside.append(text(left - 5, above, words, TICK, anchor="end"))
        if label:
            # Lines of a rotated label stack from left to right.
            middle = self.box.top + self.box.height / 2
            self._outside.append(text(2 + LABEL, middle, label, LABEL, anchor="middle", turn=-90))

    def svg(self, number: int) -> str:
        """The panel as SVG elements.

        Args:
            number: Number of the panel in its drawing, for ids.
        """
        left, top, width, height = map(decimal, self.box)
        return (
            f'<defs><clipPath id="clip{number}"><rect x="{left}" y="{top}" width="{width}" height="{height}"/>'
            f'</clipPath></defs>{"".join(self._behind)}<g clip-path="url(#clip{number})">{"".join(self._inside)}</g>'
            + "".join(self._outside)
        )

    def _px(self, x: float) -> float:
        low, high = self.x
        return self.box.left + self.box.width * (x - low) / (high - low)

    def _py(self, y: float) -> float:
        low, high = self.y
        if self.log_y:
            # Zero has no logarithm; what lies below the axis is clipped anyway.
            y, low, high = (math.log10(max(value, low / 10)) for value in (y, low, high))
        return self.box.top + self.box.height * (high - y) / (high - low)


_FRAME = LineStyle("#000000", width=0.6)


def above_zero(values: Iterable[float]) -> float:
    """The upper end of an axis that starts at 0 and fits all values.

    Args:
        values: What the axis must fit; NaN is ignored.
    """
    return 1.05 * max((value for value in values if not math.isnan(value)), default=1.0) or 1.0


def nice_ticks(low: float, high: float, most: int = 6) -> list[tuple[float, str]]:
    """Round numbers between two ends, with their labels.

    Args:
        low: Lower end.
        high: Upper end.
        most: Maximum number of them.
    """
    rough = (high - low) / max(1, most - 1)
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(number * step, f"{number * step + 0.0:.{digits}f}") for number in range(first, last + 1)]
