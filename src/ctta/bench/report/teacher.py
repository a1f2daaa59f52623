"""A controlled teacher along the stream: entropy, momentum, resets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ctta.bench.figures.canvas import panels
from ctta.bench.plots import COLOURS, svg
from ctta.bench.report.canvas import MOST_POINTS, WIDTH, Picture, legend_below, logs_of, mark_domains, step_label
from ctta.bench.report.runs import Line, Log


def has_teacher(line: Line) -> bool:
    """Whether the row's steps say what a controlled teacher did."""
    return any("alpha" in step for log in logs_of(line)[:1] for step in log.steps)


def teacher(line: Line) -> Picture:
    """Entropy with the limit below which the teacher is reset, its momentum, and the resets."""
    run = next(run for run in line.runs if run.log is not None and run.log.steps)
    log: Log = logs_of(line)[0]
    figure, (above, below) = panels(2, size=(WIDTH, 4.6), sharex=True)
    every = -(-len(log.steps) // MOST_POINTS)
    handles = above.plot(*_means(log.steps, "entropy", every), color=COLOURS[1], linewidth=1.1, label="entropy")
    e_min = run.record["settings"].get("e_min")
    if isinstance(e_min, (int, float)):
        handles.append(above.axhline(e_min, color=COLOURS[3], linewidth=1, linestyle="--", label=f"e_min = {e_min:g}"))
    above.set_ylim(bottom=0)
    above.set_ylabel("entropy (nat)")
    handles += below.plot(*_means(log.steps, "alpha", every), color=COLOURS[4], linewidth=1.1, label="α")
    below.set_ylabel("teacher momentum α")
    below.margins(y=0.18)
    resets = [place for place, step in enumerate(log.steps) if step.get("teacher_reset")]
    if resets:
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
    below.set_xlabel(step_label(log))
    for panel in (above, below):
        mark_domains(panel, log.stretches(), names=panel is above)
    figure.align_ylabels([above, below])
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
    label, seed = line.row.label, run.record["spec"]["seed"]
    return Picture(
        svg(figure, f"The teacher of {label}"),
        f"Seed {seed}: mean entropy of the student's answers, momentum of its teacher, and "
        f"{len(resets)} resets in {len(log.steps)} steps." + (f" Means over {every} steps." if every > 1 else ""),
    )


def _means(steps: Sequence[dict[str, Any]], name: str, every: int) -> tuple[list[float], list[float]]:
    """Places and values of what steps logged; of long streams the means of blocks."""
    x, y = [], []
    for begin in range(0, len(steps), every):
        known = [step[name] for step in steps[begin : begin + every] if step.get(name) is not None]
        if known:
            x.append(begin + (every - 1) / 2)
            y.append(statistics.fmean(known))
    return x, y
