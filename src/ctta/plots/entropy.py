"""Histograms of the entropy of correct and incorrect predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctta.plots.canvas import Area, Canvas, Plot
from ctta.plots.elements import LineStyle
from ctta.plots.panel import Box, Panel
from ctta.plots.style import COLOURS, panels
from ctta.plots.text import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.steps import StepLog

_COLUMNS = 3
#: Points left of the panels, and height of a panel.
_LEFT, _HEIGHT = 38.0, 62.0


@dataclass(frozen=True)
class Histogram:
    """Predictions of one method by entropy, in bins of equal width from 0 to ln C.

    Args:
        label: Title of the panel.
        correct: Number of correct predictions in each bin.
        wrong: Number of incorrect predictions in each bin.
    """

    label: str
    correct: Sequence[int]
    wrong: Sequence[int]

    @classmethod
    def of_logs(cls, label: str, logs: Sequence[StepLog]) -> Histogram:
        """Sum the histograms of several runs.

        Args:
            label: Title of the panel.
            logs: The step log of each run.
        """
        correct = [sum(column) for column in zip(*(log.entropy_correct for log in logs), strict=True)]
        wrong = [sum(column) for column in zip(*(log.entropy_wrong for log in logs), strict=True)]
        return cls(label, correct, wrong)


def draw_entropies(histograms: Sequence[Histogram], classes: int | None) -> Figure:
    """Draw a panel per method; correct and incorrect predictions together are 100 %.

    Args:
        histograms: One entry per panel.
        classes: Number of classes C; None draws entropy as a share of ln C.
    """
    unit = "as a share of ln C" if classes is None else "(nat)"
    longest = 1.0 if classes is None else math.log(classes)
    figure, found = panels(1, len(histograms), size=(3.3 * len(histograms) + 0.4, 3.4), sharex=True, sharey=True)
    for panel, mine in zip(found, histograms, strict=True):
        images = sum(mine.correct) + sum(mine.wrong)
        width = longest / len(mine.correct)
        edges = [i * width for i in range(len(mine.correct) + 1)]
        for name, counts, colour in (("correct", mine.correct, COLOURS[1]), ("incorrect", mine.wrong, COLOURS[3])):
            share = [100 * count / images for count in counts]
            panel.stairs(share, edges, fill=True, alpha=0.35, color=colour)
            panel.stairs(share, edges, color=colour, label=f"{name} ({sum(share):.0f} %)")
        panel.set_title(mine.label, fontsize=10)
        panel.set_xlabel(f"entropy of the prediction {unit}")
        panel.legend(frameon=False, fontsize=9)
    found[0].set_ylabel("predictions (%)")
    return figure


def plot_entropies(histograms: Sequence[Histogram]) -> Plot:
    """Plot small histograms for a page; correct and incorrect predictions are 100 % each.

    Args:
        histograms: One entry per panel.
    """
    columns = min(_COLUMNS, len(histograms))
    rows = -(-len(histograms) // columns)
    titles = [short(mine.label, width=19) for mine in histograms]
    above = 8 + 9 * max(title.count("\n") + 1 for title in titles)
    canvas = Canvas()
    top = canvas.legend(
        [("correct predictions", Area(COLOURS[6])), ("incorrect predictions", LineStyle(COLOURS[3]))], 4
    )
    width = (canvas.width - _LEFT - 8 - 10 * (columns - 1)) / columns
    bins = len(histograms[0].correct)
    edges = [index / bins for index in range(bins + 1)]
    for number, (mine, title) in enumerate(zip(histograms, titles, strict=True)):
        row, column = divmod(number, columns)
        box = Box(_LEFT + column * (width + 10), top + above + row * (_HEIGHT + above), width, _HEIGHT)
        panel = canvas.add(Panel(box, (0, 1), (0.1, 100), log_y=True))
        panel.draw_stairs(_shares(mine.correct), edges, COLOURS[6], fill=True)
        panel.draw_stairs(_shares(mine.wrong), edges, COLOURS[3], fill=False)
        panel.title(title)
        lowest = number + columns >= len(histograms)
        panel.x_axis([(0, "0"), (0.5, "0.5"), (1, "1")] if lowest else [(0, ""), (0.5, ""), (1, "")])
        panel.y_axis([(y, f"{y:g}" if column == 0 else "") for y in (0.1, 1, 10, 100)])
    bottom = top + rows * (above + _HEIGHT)
    canvas.write(canvas.width / 2, bottom + 26, "entropy of a prediction, as a share of ln C")
    canvas.write(10, (top + bottom) / 2, "share of predictions (%)", turn=-90)
    canvas.height = bottom + 32
    return Plot(
        canvas,
        "Entropy of correct and incorrect predictions",
        f"Predictions by entropy, in {bins} bins from 0 to ln C, the entropy of a guess among C classes. The correct "
        "predictions of a row add up to 100 %, and so do the incorrect ones: the further apart the two histograms, the "
        "better entropy predicts mistakes.",
    )


def _shares(counts: Sequence[int]) -> list[float]:
    return [100 * count / max(1, sum(counts)) for count in counts]
