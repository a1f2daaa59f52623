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
    """Outcomes of several reset thresholds in one situation, on the same images.

    Args:
        situation: Title of the panel.
        e_min: The thresholds; 0 never resets.
        error: Mean error with the first threshold.
        points: Error with each threshold minus that with the first, in percentage points.
        bars: Standard error of each difference; 0 if unknown.
        resets: Share of steps that reset with each threshold, in percent.
    """

    situation: str
    e_min: Sequence[float]
    error: float
    points: Sequence[float]
    bars: Sequence[float]
    resets: Sequence[float]


def draw_resets(situations: Sequence[Thresholds]) -> Figure:
    """Draw a panel per situation: the difference in error as dots, the share of steps that reset as bars.

    All panels have one scale, so that equal differences look equal.

    Args:
        situations: One entry per panel.
    """
    columns = min(3, len(situations))
    rows = -(-len(situations) // columns)
    figure, found = panels(rows, columns, size=(2.9 * columns + 0.8, 2.9 * rows + 0.6), sharey=True)
    for panel in found[len(situations) :]:
        panel.set_visible(False)
    for number, (panel, mine) in enumerate(zip(found, situations, strict=False)):
        x = range(len(mine.points))
        behind = panel.twinx()
        behind.bar(x, mine.resets, color="#dddddd", width=0.6, label="steps that reset (%)")
        behind.set_ylim(0, 100)
        behind.spines["top"].set_visible(False)
        panel.set_zorder(behind.get_zorder() + 1)
        panel.patch.set_visible(False)
        panel.axhline(0, color="#000000", linewidth=0.8)
        style = {"color": COLOURS[1], "marker": "o", "markersize": 5, "capsize": 4, "linewidth": 1.4}
        panel.errorbar(x, mine.points, mine.bars, label="difference in error, ± standard error", **style)
        panel.set_xticks(x, ["never" if e == 0 else f"{e:g}" for e in mine.e_min])
        panel.set_title(f"{mine.situation}: {mine.error:.1f} % {_without(mine.e_min[0])}", fontsize=9.5)
        if number >= len(situations) - columns:
            panel.set_xlabel("reset below e_min (nat)")
        if number % columns == 0:
            panel.set_ylabel("difference (points)", color=COLOURS[1])
        if number % columns == columns - 1:
            behind.set_ylabel("steps that reset (%)", color="#666666")
        else:
            behind.set_yticklabels([])
    lines = [axes.get_legend_handles_labels() for axes in (found[0], behind)]
    figure.legend(
        *(part_a + part_b for part_a, part_b in zip(*lines, strict=True)),
        loc="outside upper center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    return figure


def _without(e_min: float) -> str:
    return "without reset" if e_min == 0 else f"at {e_min:g}"
