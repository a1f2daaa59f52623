"""Histograms of the entropy of right and wrong answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctta.bench.evaluate import ENTROPY_BINS
from ctta.bench.figures.canvas import panels
from ctta.bench.plots import COLOURS
from ctta.nets.models import MODELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.experiments.cells import Outcome


def draw_entropies(outcomes: Sequence[Outcome]) -> Figure:
    """A panel per method: answers by entropy, right ones and wrong ones."""
    figure, found = panels(1, len(outcomes), size=(3.3 * len(outcomes) + 0.4, 3.4), sharex=True, sharey=True)
    for panel, outcome in zip(found, outcomes, strict=True):
        steps = [step for record in outcome.records for step in outcome.steps(record)]
        images = sum(step["images"] for step in steps)
        width = math.log(MODELS[outcome.records[0]["spec"]["model"]["name"]].num_classes) / ENTROPY_BINS
        edges = [i * width for i in range(ENTROPY_BINS + 1)]
        for name, colour in (("right", COLOURS[1]), ("wrong", COLOURS[3])):
            counts = [sum(column) for column in zip(*(step[f"entropy_{name}"] for step in steps), strict=True)]
            share = [100 * count / images for count in counts]
            panel.stairs(share, edges, fill=True, alpha=0.35, color=colour)
            panel.stairs(share, edges, color=colour, label=f"{name} ({sum(share):.0f} %)")
        panel.set_title(f"{outcome.cell.label}", fontsize=10)
        panel.set_xlabel("entropy of the answer (nat)")
        panel.legend(frameon=False, fontsize=9)
    found[0].set_ylabel("answers (%)")
    return figure
