"""Small drawings for a page: panels and a legend as one SVG file, made without matplotlib.

A page has hundreds of them, and matplotlib needs a good part of a second for each.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from ctta.plots.elements import LineStyle, decimal, dot_at, marker_at, stroke, text
from ctta.plots.panel import LABEL, TICK, Box, Panel
from ctta.plots.text import escaped, text_width

#: Inches: readable on a phone, and two plots fit side by side on a desktop screen.
WIDTH = 4.6
POINTS = 72
_FONT = "DejaVu Sans, Verdana, sans-serif"
_LINE = 1.2 * TICK


class Area(NamedTuple):
    """The legend sample of a filled area."""

    colour: str


class Dot(NamedTuple):
    """The legend sample of dots."""

    style: LineStyle
    size: float


#: What a legend can show next to a label.
Sample = LineStyle | Area | Dot


class Canvas:
    """Panels from top to bottom, and a legend.

    Args:
        width: Width in inches.
        height: Height in points.
    """

    def __init__(self, width: float = WIDTH, height: float = 0.0) -> None:
        self.width = POINTS * width
        self.height = height
        self.panels: list[Panel] = []
        self._around: list[str] = []

    def add(self, panel: Panel) -> Panel:
        """Add a panel.

        Args:
            panel: The panel, whose box must lie inside the canvas.
        """
        self.panels.append(panel)
        return panel

    def legend(self, entries: Sequence[tuple[str, Sample]], top: float) -> float:
        """Draw a legend in as many columns as fit, read row by row.

        Args:
            entries: Labels of one or several lines, with a sample each.
            top: Its upper edge in points.

        Returns:
            Its lower edge in points.
        """
        widest = max(text_width(label, TICK) for label, _ in entries) + 34
        columns = max(1, min(len(entries), int(self.width // widest)))
        # As few columns as the rows need.
        columns = -(-len(entries) // -(-len(entries) // columns))
        left = (self.width - columns * widest) / 2
        for begin in range(0, len(entries), columns):
            row = entries[begin : begin + columns]
            for column, (label, sample) in enumerate(row):
                self._entry(left + column * widest, top, label, sample)
            top += max(label.count("\n") for label, _ in row) * _LINE + 1.35 * _LINE
        return top

    def write(self, x: float, y: float, words: str, *, turn: float = 0) -> None:
        """Write a label, centred at a point.

        Args:
            x: Horizontal position in points.
            y: Vertical position in points.
            words: The text.
            turn: Rotation in degrees.
        """
        self._around.append(text(x, y, words, LABEL, anchor="middle", turn=turn))

    def picture(self, box: Box, png: bytes) -> None:
        """Show a picture.

        Args:
            box: The rectangle to fill, in points.
            png: A PNG file.
        """
        place = " ".join(
            f'{name}="{decimal(value)}"' for name, value in zip(("x", "y", "width", "height"), box, strict=True)
        )
        self._around.append(f'<image {place} href="data:image/png;base64,{b64encode(png).decode()}"/>')

    def _entry(self, left: float, top: float, label: str, sample: Sample) -> None:
        middle = top + 0.55 * _LINE
        if isinstance(sample, Area):
            box = f'x="{left:g}" y="{middle - 3:g}" width="20" height="6"'
            self._around.append(f'<rect {box} fill="{sample.colour}" fill-opacity=".8"/>')
        elif isinstance(sample, Dot):
            self._around.append(dot_at(left + 14, middle, sample.style, sample.size))
        else:
            self._around.append(stroke(f"M{left:g} {middle:g}h20", sample) + marker_at(left + 10, middle, sample))
        self._around.append(text(left + 25, middle + 0.35 * TICK, label, TICK))

    def svg(self, title: str) -> bytes:
        """The drawing as an SVG file; the same drawing gives the same bytes.

        Args:
            title: Title inside the file.
        """
        body = "".join(panel.svg(number) for number, panel in enumerate(self.panels)) + "".join(self._around)
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" '
            f'width="{self.width:g}pt" height="{self.height:.2f}pt" viewBox="0 0 {self.width:g} {self.height:.2f}" '
            # The drawing needs a white background, even on a dark page.
            f'font-family="{_FONT}" style="background:#fff"><title>{escaped(title)}</title>{body}</svg>'
        ).encode()


class Plot(NamedTuple):
    """A drawing for a page, with its title and caption."""

    canvas: Canvas
    title: str
    caption: str

    def svg(self) -> bytes:
        """The plot as an SVG file."""
        return self.canvas.svg(self.title)
