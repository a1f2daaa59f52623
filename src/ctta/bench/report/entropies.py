"""Whether entropy tells right answers from wrong ones: a histogram of each, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from ctta.bench.evaluate import ENTROPY_BINS
from ctta.bench.figures.along import WIDTH, short
from ctta.bench.figures.canvas import panels
from ctta.bench.plots import COLOURS, svg
from ctta.bench.report.canvas import Picture, logs_of
from ctta.bench.report.runs import Line

_COLUMNS = 3


def has_entropies(line: Line) -> bool:
    """Whether the row's steps counted answers by entropy."""
    return any(sum(log.right) + sum(log.wrong) for log in logs_of(line))


def entropies(lines: Sequence[Line]) -> Picture:
    """Histograms of entropy, right answers filled and wrong ones as a line, each of area one."""
    columns = min(_COLUMNS, len(lines))
    rows = -(-len(lines) // columns)
    titles = [short(line.row.label, width=19) for line in lines]
    height = 0.8 + rows * (1.05 + 0.12 * max(title.count("\n") for title in titles))
    figure, found = panels(rows, columns, size=(WIDTH, height), sharex=True, sharey=True)
    edges = [place / ENTROPY_BINS for place in range(ENTROPY_BINS + 1)]
    handles = []
    for panel, line, title in zip(found, lines, titles, strict=False):
        right = _shares([log.right for log in logs_of(line)])
        wrong = _shares([log.wrong for log in logs_of(line)])
        handles = [
            panel.stairs(right, edges, fill=True, color=COLOURS[6], alpha=0.8),
            panel.stairs(wrong, edges, color=COLOURS[3], linewidth=1.2),
        ]
        panel.set_title(title, fontsize=7.5, pad=3)
        panel.set_xlim(0, 1)
        panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    for panel in found[len(lines) :]:
        panel.set_axis_off()
    for panel in found[len(lines) - columns : len(lines)]:
        panel.tick_params(labelbottom=True)
    found[0].set_yscale("log")
    found[0].set_ylim(0.1, 100)
    found[0].set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    found[0].minorticks_off()
    figure.supxlabel("entropy of an answer, as a share of ln C", fontsize=8.5)
    figure.supylabel("share of answers (%)", fontsize=8.5)
    figure.legend(handles, ["right answers", "wrong answers"], loc="outside upper center", ncols=2, frameon=False)
    return Picture(
        svg(figure, "Entropy of right and wrong answers"),
        f"Answers by the entropy of their logits, in {ENTROPY_BINS} bins from 0 to ln C, that of a guess among C "
        "classes. The right answers of a row add up to 100 %, and so do the wrong ones: the further apart, the more "
        "entropy tells.",
    )


def _shares(counts: Sequence[Sequence[int]]) -> list[float]:
    sums = [sum(column) for column in zip(*counts, strict=True)]
    return [100 * count / max(1, sum(sums)) for count in sums]
