"""Labels of rows on the left of horizontal bars."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ctta.bench.compare import Row
from ctta.plots.panel import TICK
from ctta.plots.text import short, text_width


def row_ticks(rows: Sequence[Row]) -> list[tuple[float, str]]:
    """The index and the wrapped label of each row.

    Args:
        rows: The rows of a table.
    """
    return [(index, short(row.label)) for index, row in enumerate(rows)]


def row_heights(rows: Sequence[Row]) -> float:
    """Height in points that the rows need together, at equal distances.

    Args:
        rows: The rows of a table.
    """
    heights = [14.4 + 1.2 * TICK * label.count("\n") for _, label in row_ticks(rows)]
    distance = max((sum(pair) / 2 for pair in pairwise(heights)), default=heights[0])
    return (len(rows) + 0.2) * distance


def label_margin(rows: Sequence[Row]) -> float:
    """Width in points that the labels need on the left.

    Args:
        rows: The rows of a table.
    """
    return 8 + max(text_width(label, TICK) for _, label in row_ticks(rows))
