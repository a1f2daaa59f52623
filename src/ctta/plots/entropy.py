"""Histograms of the entropy of correct and incorrect predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctta.plots.stream_axis import WIDTH, short
from ctta.plots.style import COLOURS, Plot, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 3


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


def draw_entropies(histograms: Sequence[Histogram], classes: int) -> Figure:
    """Draw a panel per method; correct and incorrect predictions together are 100 %.

    Args:
        histograms: One entry per panel.
        classes: Number of classes C.
    """
    figure, found = panels(1, len(histograms), size=(3.3 * len(histograms) + 0.4, 3.4), sharex=True, sharey=True)
    for panel, mine in zip(found, histograms, strict=True):
        images = sum(mine.correct) + sum(mine.wrong)
        width = math.log(classes) / len(mine.correct)
        edges = [i * width for i in range(len(mine.correct) + 1)]
        for name, counts, colour in (("right", mine.correct, COLOURS[1]), ("wrong", mine.wrong, COLOURS[3])):
            share = [100 * count / images for count in counts]
            panel.stairs(share, edges, fill=True, alpha=0.35, color=colour)
            panel.stairs(share, edges, color=colour, label=f"{name} ({sum(share):.0f} %)")
        panel.set_title(mine.label, fontsize=10)
        panel.set_xlabel("entropy of the answer (nat)")
        panel.legend(frameon=False, fontsize=9)
    found[0].set_ylabel("answers (%)")
    return figure


def plot_entropies(histograms: Sequence[Histogram]) -> Plot:
    """Plot small histograms for a page; correct and incorrect predictions are 100 % each.

    Args:
        histograms: One entry per panel.
    """
    columns = min(_COLUMNS, len(histograms))
    rows = -(-len(histograms) // columns)
    titles = [short(mine.label, width=19) for mine in histograms]
    height = 0.8 + rows * (1.05 + 0.12 * max(title.count("\n") for title in titles))
    figure, found = panels(rows, columns, size=(WIDTH, height), sharex=True, sharey=True)
    bins = len(histograms[0].correct)
    edges = [place / bins for place in range(bins + 1)]
    handles = []
    for panel, mine, title in zip(found, histograms, titles, strict=False):
        handles = [
            panel.stairs(_shares(mine.correct), edges, fill=True, color=COLOURS[6], alpha=0.8),
            panel.stairs(_shares(mine.wrong), edges, color=COLOURS[3], linewidth=1.2),
        ]
        panel.set_title(title, fontsize=7.5, pad=3)
        panel.set_xlim(0, 1)
        panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    for panel in found[len(histograms) :]:
        panel.set_axis_off()
    for panel in found[len(histograms) - columns : len(histograms)]:
        panel.tick_params(labelbottom=True)
    found[0].set_yscale("log")
    found[0].set_ylim(0.1, 100)
    found[0].set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    found[0].minorticks_off()
    figure.supxlabel("entropy of an answer, as a share of ln C", fontsize=8.5)
    figure.supylabel("share of answers (%)", fontsize=8.5)
    figure.legend(handles, ["right answers", "wrong answers"], loc="outside upper center", ncols=2, frameon=False)
    return Plot(
        figure,
        "Entropy of right and wrong answers",
        f"Answers by the entropy of their logits, in {bins} bins from 0 to ln C, that of a guess among C "
        "classes. The right answers of a row add up to 100 %, and so do the wrong ones: the further apart, the more "
        "entropy tells.",
    )


def _shares(counts: Sequence[int]) -> list[float]:
    return [100 * count / max(1, sum(counts)) for count in counts]
