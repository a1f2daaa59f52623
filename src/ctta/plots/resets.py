"""Error and share of steps that reset the teacher, by threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctta.plots.style import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Thresholds:
    """Outcomes of several reset thresholds in one situation.

    Args:
        situation: Title of the panel.
        e_min: The thresholds; 0 never resets.
        errors: Mean error with each threshold.
        resets: Share of steps that reset with each threshold, in percent.
    """

    situation: str
    e_min: Sequence[float]
    errors: Sequence[float]
    resets: Sequence[float]


def draw_resets(situations: Sequence[Thresholds]) -> Figure:
    """Draw a panel per situation, with the error as a line and the share of steps that reset as bars.

    Args:
        situations: One entry per panel.
    """
    columns = min(3, len(situations))
    rows = -(-len(situations) // columns)
    figure, found = panels(rows, columns, size=(2.9 * columns + 0.8, 3.1 * rows + 0.3))
    for panel in found[len(situations) :]:
        panel.set_visible(False)
    for number, (panel, mine) in enumerate(zip(found, situations, strict=False)):
        x = range(len(mine.errors))
        behind = panel.twinx()
        behind.bar(x, mine.resets, color="#dddddd", width=0.6)
        behind.set_ylim(0, 100)
        behind.spines["top"].set_visible(False)
        panel.set_zorder(behind.get_zorder() + 1)
        panel.patch.set_visible(False)
        panel.plot(x, mine.errors, color=COLOURS[1], marker="o", markersize=4)
        lowest = min(mine.errors)
        panel.annotate(
            f"{lowest:.1f}",
            (list(mine.errors).index(lowest), lowest),
            textcoords="offset points",
            xytext=(0, -13),
            ha="center",
            color=COLOURS[1],
            fontsize=9,
        )
        panel.margins(y=0.25)
        panel.set_xticks(x, ["never" if e == 0 else f"{e:g}" for e in mine.e_min], rotation=45)
        panel.set_title(mine.situation, fontsize=10)
        if number >= len(situations) - columns:
            panel.set_xlabel("reset below e_min (nat)")
        if number % columns == 0:
            panel.set_ylabel("mean error (%)", color=COLOURS[1])
        if number % columns == columns - 1:
            behind.set_ylabel("steps that reset (%), bars", color="#777777")
        else:
            behind.set_yticklabels([])
    return figure
