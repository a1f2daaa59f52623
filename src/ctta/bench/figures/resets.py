"""When the teacher's reset helps: error and share of steps that reset, by threshold."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctta.bench.figures.canvas import panels
from ctta.bench.figures.teacher import resets_of
from ctta.bench.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.experiments.cells import Outcome


def draw_resets(outcomes: Sequence[Outcome]) -> Figure:
    """A panel per situation: the error as a line, the share of steps that reset as bars."""
    situations: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        situations.setdefault(outcome.cell.label.split(":")[0], []).append(outcome)
    columns = min(3, len(situations))
    rows = -(-len(situations) // columns)
    figure, found = panels(rows, columns, size=(2.9 * columns + 0.8, 3.1 * rows + 0.3))
    for panel in found[len(situations) :]:
        panel.set_visible(False)
    for number, (panel, (situation, mine)) in enumerate(zip(found, situations.items(), strict=False)):
        x = range(len(mine))
        shares = [100 * statistics.fmean(share_of_resets(o, r) for r in o.records) for o in mine]
        behind = panel.twinx()
        behind.bar(x, shares, color="#dddddd", width=0.6)
        behind.set_ylim(0, 100)
        behind.spines["top"].set_visible(False)
        panel.set_zorder(behind.get_zorder() + 1)
        panel.patch.set_visible(False)
        errors = [outcome.mean for outcome in mine]
        panel.plot(x, errors, color=COLOURS[1], marker="o", markersize=4)
        panel.annotate(
            f"{min(errors):.1f}",
            (errors.index(min(errors)), min(errors)),
            textcoords="offset points",
            xytext=(0, -13),
            ha="center",
            color=COLOURS[1],
            fontsize=9,
        )
        panel.margins(y=0.25)
        labels = ["never" if (e := o.records[0]["settings"]["e_min"]) == 0 else f"{e:g}" for o in mine]
        panel.set_xticks(x, labels, rotation=45)
        panel.set_title(situation, fontsize=10)
        if number >= len(situations) - columns:
            panel.set_xlabel("reset below e_min (nat)")
        if number % columns == 0:
            panel.set_ylabel("mean error (%)", color=COLOURS[1])
        if number % columns == columns - 1:
            behind.set_ylabel("steps that reset (%), bars", color="#777777")
        else:
            behind.set_yticklabels([])
    return figure


def share_of_resets(outcome: Outcome, record: dict[str, Any]) -> float:
    """The share of a run's steps in which the teacher went back to the source."""
    steps = outcome.steps(record)
    return len(resets_of(steps)) / len(steps)
