"""An empty figure in the house style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctta.bench.plots import EDGE, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def panels(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (7, 4.2), **shared: Any
) -> tuple[Figure, list[Any]]:
    """A figure and its panels, row by row."""
    require_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional dependency

    figure = Figure(figsize=size, layout="constrained")
    found = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for panel in found:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color=EDGE, linewidth=0.6)
        panel.set_axisbelow(True)
    return figure, found
