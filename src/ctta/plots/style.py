"""Shared by all plots: colours, line styles, panels, and conversion to SVG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ctta.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which can be told apart with any kind of colour vision; grey first, for the unadapted source.
COLOURS = ("#7f7f7f", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
EDGE = "#d9d9d9"
_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vPX<>"


class Plot(NamedTuple):
    """A drawn figure with its title and, on a page, the sentence below it."""

    figure: Figure
    title: str
    caption: str = ""

    def svg(self) -> bytes:
        """The plot as an SVG file."""
        return svg(self.figure, self.title)


def require_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("matplotlib", "demo") from error


def line_style(number: int) -> dict[str, Any]:
    """Colour, dashes and marker of the n-th line of a plot; after the eighth, colours repeat with other dashes.

    Args:
        number: Place of the line; 0 is grey and reserved for the source model.
    """
    again, colour = divmod(max(number, 1) - 1, len(COLOURS) - 1)
    return {
        "color": COLOURS[0 if number == 0 else 1 + colour],
        "linestyle": _LINES[again % len(_LINES)],
        "marker": _MARKERS[number % len(_MARKERS)],
    }


def svg(figure: Figure, title: str) -> bytes:
    """Convert a figure to an SVG file; the same drawing gives the same bytes.

    Text stays text, so that it can be searched and a page can choose its font. It is laid out for DejaVu Sans, which is
    wider than the fonts that may replace it.

    Args:
        figure: A matplotlib figure.
        title: Title inside the file; unprintable characters, which XML forbids, are removed.
    """
    import matplotlib as mpl  # noqa: PLC0415

    file = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Type", "Format"))
    metadata |= {"Title": "".join(character for character in title if character.isprintable())}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ctta", "font.sans-serif": ["DejaVu Sans"]}):
        figure.savefig(file, format="svg", metadata=metadata)
    return file.getvalue()


def panels(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (7, 4.2), **shared: Any
) -> tuple[Figure, list[Any]]:
    """Make a figure with a grid of empty panels.

    Args:
        rows: Rows of panels.
        columns: Columns of panels.
        size: Width and height of the figure in inches.
        shared: Passed on to ``Figure.subplots``.

    Returns:
        The figure, and its panels row by row.
    """
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional dependency

    figure = Figure(figsize=size, layout="constrained")
    found = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for panel in found:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color=EDGE, linewidth=0.6)
        panel.set_axisbelow(True)
    return figure, found


@contextmanager
def phone_style() -> Iterator[None]:
    """Draw with small text inside this context, and show dollar signs in labels as they are."""
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency

    with mpl.rc_context(
        {
            "font.size": 8.5,
            "axes.labelsize": 8.5,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "legend.fontsize": 8,
            "axes.linewidth": 0.6,
            "axes.formatter.useoffset": False,
            "text.parse_math": False,
        }
    ):
        yield
