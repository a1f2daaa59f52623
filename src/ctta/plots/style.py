"""Shared by all plots: colours, line styles, panels, and conversion to SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from ctta.bench.compare import Row
from ctta.errors import MissingExtra
from ctta.plots.canvas import Canvas
from ctta.plots.elements import LineStyle
from ctta.plots.panel import EDGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct with any kind of colour vision; grey first, for the unadapted source.
COLOURS = ("#7f7f7f", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
#: Further colours, by Paul Tol; darker or duller than the others, so that they are distinct in grey too.
_MORE = ("#882255", "#332288", "#999933", "#44AA99", "#8C510A", "#AA4499")
_GREY, _BLUE, _ORANGE, _RED, _GREEN, _PINK, _SKY, _BLACK = COLOURS
_WINE, _INDIGO, _OLIVE, _TEAL, _BROWN, _PURPLE = _MORE
_DASHES = ("-", "--", ":", "-.")
_MARKERS = "osD^vPX<>"

#: How each built-in method is drawn in every plot. The methods of the demo have a colour each; the others share these
#: colours with different dashes. No two have the same colour and dashes, nor the same dashes and marker.
METHOD_STYLES = {
    "source": LineStyle(_GREY, "-", "o"),
    "bn": LineStyle(_BLACK, "-", "s"),
    "tent": LineStyle(_BLUE, "-", "D"),
    "cotta": LineStyle(_ORANGE, "-", "^"),
    "rmt": LineStyle(_GREEN, "-", "v"),
    "santa": LineStyle(_PINK, "-", "P"),
    "dmse": LineStyle(_RED, "-", "X"),
    "eata": LineStyle(_SKY, "-", "<"),
    "rdumb": LineStyle(_WINE, "-", ">"),
    "rotta": LineStyle(_INDIGO, "--", "o"),
    "sar": LineStyle(_OLIVE, "--", "s"),
    "deyo": LineStyle(_TEAL, "--", "D"),
    "roid": LineStyle(_BROWN, "--", "^"),
    "bnema": LineStyle(_BLACK, "--", "v"),
    "dua": LineStyle(_BLACK, ":", "P"),
    "note": LineStyle(_INDIGO, ":", "X"),
    "petta": LineStyle(_INDIGO, "-.", "<"),
    "petal": LineStyle(_ORANGE, "--", ">"),
    "obao": LineStyle(_GREEN, "--", "P"),
    "cmf": LineStyle(_BROWN, ":", "o"),
    "asr": LineStyle(_BROWN, "-.", "s"),
    "palm": LineStyle(_TEAL, ":", "D"),
    "law": LineStyle(_TEAL, "-.", "^"),
    "shot": LineStyle(_BLUE, "--", "X"),
    "rpl": LineStyle(_BLUE, ":", "v"),
    "memo": LineStyle(_SKY, "--", "<"),
    "t3a": LineStyle(_PINK, "-.", "o"),
    "lame": LineStyle(_OLIVE, "-.", "D"),
    "trio": LineStyle(_PURPLE, ":", "s"),
}


def require_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("matplotlib", "demo") from error


def line_style(number: int) -> LineStyle:
    """Colour, dashes and marker of the n-th line of a plot; after the eighth, colours repeat with different dashes.

    Args:
        number: Index of the line; 0 is grey and reserved for the source model.
    """
    again, colour = divmod(max(number, 1) - 1, len(COLOURS) - 1)
    return LineStyle(
        COLOURS[0 if number == 0 else 1 + colour], _DASHES[again % len(_DASHES)], _MARKERS[number % len(_MARKERS)]
    )


def row_styles(rows: Sequence[Row]) -> dict[str, LineStyle]:
    """Choose how the rows of one table are drawn, by label; a method looks the same in every plot.

    Further rows of a method, and methods that are not built in, get the first styles that no other row uses.

    Args:
        rows: The rows.
    """
    found: dict[str, LineStyle] = {}
    for row in rows:
        style = METHOD_STYLES.get(row.records[0].spec.method)
        if style is not None and style not in found.values():
            found[row.label] = style
    taken = {(style.colour, style.dashes) for style in found.values()}
    free = (style for number in count(1) if ((style := line_style(number)).colour, style.dashes) not in taken)
    return {row.label: found.get(row.label) or next(free) for row in rows}


def svg(figure: Figure | Canvas, title: str) -> bytes:
    """Convert a figure to an SVG file; the same drawing gives the same bytes.

    Text stays text, so that it can be searched and a page can choose its font. It is laid out for DejaVu Sans, which is
    wider than the fonts that may replace it.

    Args:
        figure: A matplotlib figure, or a drawing made without it.
        title: Title inside the file; unprintable characters, which XML forbids, are removed.
    """
    if isinstance(figure, Canvas):
        return figure.svg(title)
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency

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
