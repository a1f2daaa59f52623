"""A controlled teacher along the stream: entropy, momentum, resets."""

from __future__ import annotations

from ctta.bench.figures.teacher import draw_trace, resets_of, steps_per_point
from ctta.bench.plots import svg
from ctta.bench.report.canvas import Picture, logs_of
from ctta.bench.report.runs import Line


def has_teacher(line: Line) -> bool:
    """Whether the row's steps say what a controlled teacher did."""
    return any("alpha" in step for log in logs_of(line)[:1] for step in log.steps)


def teacher(line: Line) -> Picture:
    """Entropy with the limit below which the teacher is reset, its momentum, and the resets."""
    run = next(run for run in line.runs if run.log is not None and run.log.steps)
    steps = logs_of(line)[0].steps
    every, seed = steps_per_point(steps), run.record["spec"]["seed"]
    return Picture(
        svg(draw_trace(steps, run.record["settings"].get("e_min")), f"The teacher of {line.row.label}"),
        f"Seed {seed}: mean entropy of the student's answers, momentum of its teacher, and "
        f"{len(resets_of(steps))} resets in {len(steps)} steps." + (f" Means over {every} steps." if every > 1 else ""),
    )
