"""What every figure shares: colours, line styles, and the way to an SVG file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from ctta.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito's colours, told apart with every kind of colour vision; grey first, for the unadapted source.
COLOURS = ("#7f7f7f", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
EDGE = "#d9d9d9"
_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vPX<>"


def require_matplotlib() -> None:
    """Raise MissingExtra where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("matplotlib", "demo") from error


def line_style(number: int) -> dict[str, Any]:
    """Colour, line and marker of the n-th line of a figure; beyond the eighth the colours come again, dashed."""
    # Grey comes once: it is the source.
    again, colour = divmod(max(number, 1) - 1, len(COLOURS) - 1)
    return {
        "color": COLOURS[0 if number == 0 else 1 + colour],
        "linestyle": _LINES[again % len(_LINES)],
        "marker": _MARKERS[number % len(_MARKERS)],
    }


def svg(figure: Figure, title: str) -> bytes:
    """A figure as an SVG file with this title: the same drawing gives the same bytes.

    Text stays text, so that it can be searched and a page can set its font; it is laid out for DejaVu Sans, which is
    wider than the fonts that may stand in for it.
    """
    import matplotlib as mpl  # noqa: PLC0415

    file = io.BytesIO()
    # XML has no control characters.
    said = {"Title": "".join(character for character in title if character.isprintable())}
    unsaid = dict.fromkeys(("Date", "Creator", "Type", "Format"))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ctta", "font.sans-serif": ["DejaVu Sans"]}):
        figure.savefig(file, format="svg", metadata=unsaid | said)
    return file.getvalue()
