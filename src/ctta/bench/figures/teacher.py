"""A controlled teacher along the stream: entropy, momentum, resets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctta.bench.figures.along import MOST_POINTS, WIDTH, legend_below, mark_domains, step_label, stretches_of
from ctta.bench.figures.canvas import panels
from ctta.bench.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.experiments.cells import Outcome


def draw_teacher(outcomes: Sequence[Outcome]) -> Figure:
    """The teacher of the first run."""
    record = outcomes[0].records[0]
    return draw_trace(outcomes[0].steps(record), record["settings"].get("e_min"), width=7.5)


def draw_trace(steps: Sequence[dict[str, Any]], e_min: float | None, *, width: float = WIDTH) -> Figure:
    """Entropy of the student with the limit below which its teacher is reset, momentum of the teacher, and resets."""
    figure, (above, below) = panels(2, size=(width, 4.3), sharex=True)
    every = steps_per_point(steps)
    handles = above.plot(*_means(steps, "entropy", every), color=COLOURS[1], linewidth=1.1, label="entropy")
    if isinstance(e_min, (int, float)):
        handles.append(above.axhline(e_min, color=COLOURS[3], linewidth=1, linestyle="--", label=f"e_min = {e_min:g}"))
    above.set_ylim(bottom=0)
    above.set_ylabel("entropy (nat)")
    x, alphas = _means(steps, "alpha", every)
    handles += below.plot(x, alphas, color=COLOURS[4], linewidth=1.1, label="α")
    below.set_ylabel("momentum α")
    # Room for the resets below, and a scale on which a fixed momentum can be read.
    room = max(0.18 * (max(alphas) - min(alphas)), 1e-3)
    below.set_ylim(min(alphas) - room, max(alphas) + room)
    if resets := resets_of(steps):
        blocks = sorted({place // every * every for place in resets})
        handles += below.plot(
            blocks,
            [0.04] * len(blocks),
            "|",
            transform=below.get_xaxis_transform(),
            color=COLOURS[3],
            markersize=7,
            markeredgewidth=0.9,
            label="reset",
        )
    below.set_xlabel(step_label(steps))
    for panel in (above, below):
        mark_domains(panel, stretches_of(steps), names=panel is above)
    figure.align_ylabels([above, below])
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def resets_of(steps: Sequence[dict[str, Any]]) -> list[int]:
    """The places of the steps in which the teacher went back to the source."""
    return [place for place, step in enumerate(steps) if step.get("teacher_reset")]


def steps_per_point(steps: Sequence[dict[str, Any]]) -> int:
    """How many steps a point of a line stands for."""
    return -(-len(steps) // MOST_POINTS)


def _means(steps: Sequence[dict[str, Any]], name: str, every: int) -> tuple[list[float], list[float]]:
    """Places and values of what steps logged; of long streams the means of blocks."""
    x, y = [], []
    for begin in range(0, len(steps), every):
        known = [step[name] for step in steps[begin : begin + every] if step.get(name) is not None]
        if known:
            x.append(begin + (every - 1) / 2)
            y.append(statistics.fmean(known))
    return x, y
