"""SVG elements: strokes, markers and text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ctta.plots.text import escaped

_DASHES = {"-": (), "--": (3.7, 1.6), ":": (1.0, 1.65), "-.": (6.4, 1.6, 1.0, 1.6)}
#: Relative paths of markers that fit into a square of side 2.
MARKERS = {
    "": "",
    "o": "m-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0",
    "s": "m-.9-.9h1.8v1.8h-1.8z",
    "D": "m0-1.25l1.25 1.25l-1.25 1.25l-1.25-1.25z",
    "^": "m0-1.1l1.1 2.2h-2.2z",
    "v": "m0 1.1l1.1-2.2h-2.2z",
    "P": "m-.4-1.1h.8v.7h.7v.8h-.7v.7h-.8v-.7h-.7v-.8h.7z",
    "X": "m-1.1-.6l.5-.5l.6.6l.6-.6l.5.5l-.6.6l.6.6l-.5.5l-.6-.6l-.6.6l-.5-.5l.6-.6z",
    "<": "m-1.1 0l2.2-1.1v2.2z",
    ">": "m1.1 0l-2.2-1.1v2.2z",
}


class LineStyle(NamedTuple):
    """How a line is drawn; dashes and markers are written as in matplotlib."""

    colour: str
    dashes: str = "-"
    marker: str = ""
    width: float = 1.1


def stroke(path: str, style: LineStyle) -> str:
    """A path as an SVG element.

    Args:
        path: Path data.
        style: How to draw it.
    """
    dashes = " ".join(decimal(style.width * part) for part in _DASHES[style.dashes])
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{path}" fill="none" stroke="{style.colour}" stroke-width="{decimal(style.width)}"{dashed}/>'


def markers(points: Iterable[str], marker: str, colour: str) -> str:
    """Markers as one SVG element.

    Args:
        points: Positions as "x y".
        marker: Relative path of one marker.
        colour: Their colour.
    """
    return f'<path d="{"".join(f"M{point}{marker}" for point in points)}" fill="{colour}" stroke="{colour}"/>'


def marker_at(x: float, y: float, style: LineStyle) -> str:
    """The marker of a line style at one point; empty if it has none.

    Args:
        x: Horizontal position in points.
        y: Vertical position in points.
        style: The style.
    """
    marker = MARKERS[style.marker]
    return markers([f"{decimal(x)} {decimal(y)}"], marker, style.colour) if marker else ""


def dot_at(x: float, y: float, style: LineStyle, size: float) -> str:
    """A marker without a line, of any size, with a thin white edge that keeps overlapping ones apart.

    Args:
        x: Horizontal position in points.
        y: Vertical position in points.
        style: Marker and colour.
        size: Half its side in points.
    """
    place = f"translate({decimal(x)} {decimal(y)}) scale({decimal(size)})"
    path = f"M0 0{MARKERS[style.marker or 'o']}"
    return f'<path transform="{place}" d="{path}" fill="{style.colour}" stroke="#fff" stroke-width=".2"/>'


def text(x: float, y: float, words: str, size: float, *, anchor: str = "start", turn: float = 0) -> str:
    """A text of one or several lines as SVG elements.

    Args:
        x: Horizontal position in points.
        y: Vertical position of the first baseline.
        words: The text; whatever it contains is shown literally.
        size: Font size in points.
        anchor: "start", "middle" or "end".
        turn: Rotation about its position, in degrees.
    """
    turned = f' transform="rotate({decimal(turn)} {decimal(x)} {decimal(y)})"' if turn else ""
    anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return "".join(
        f'<text x="{decimal(x)}" y="{decimal(y + 1.2 * size * number)}" font-size="{decimal(size)}"{anchored}{turned}>'
        f"{escaped(line)}</text>"
        for number, line in enumerate(words.split("\n"))
    )


def decimal(value: float) -> str:
    """Format a number with at most two decimals.

    Args:
        value: The number.
    """
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
