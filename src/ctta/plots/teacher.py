"""A teacher with dynamic momentum along the stream: entropy, momentum, resets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctta.plots.canvas import WIDTH, Canvas, Plot, Sample
from ctta.plots.elements import LineStyle
from ctta.plots.panel import Box, Panel, above_zero, nice_ticks
from ctta.plots.stream_axis import mark_domains, room_for_names, steps_axis, steps_per_point, stretches_of
from ctta.plots.style import COLOURS

if TYPE_CHECKING:
    from ctta.bench.steps import StepFacts

#: Points left of a panel, for the labels of its axis; height of a panel, and from one panel to the next.
_LEFT, _HEIGHT, _DISTANCE = 50.0, 110.0, 124.0

#: Labels of a legend with their samples.
_Legend = list[tuple[str, Sample]]


def draw_teacher(steps: Sequence[StepFacts], e_min: Any, *, width: float = WIDTH) -> Canvas:
    """Draw the entropy of the student with the reset threshold, and below it the teacher's momentum and resets.

    What the steps did not log is left out.

    Args:
        steps: The steps of one run.
        e_min: Entropy below which the teacher is reset; anything but a finite number is not drawn.
        width: Width of the drawing in inches.
    """
    canvas, stretches = Canvas(width), stretches_of(steps)
    top = 6 + room_for_names(stretches)
    legend: _Legend = []
    if _logs(steps, "entropy"):
        legend += _draw_entropy(canvas, steps, e_min, top)
        top += _DISTANCE
    legend += _draw_momentum(canvas, steps, top)
    steps_axis(canvas.panels[-1], steps)
    for panel in canvas.panels:
        mark_domains(panel, stretches, names=panel is canvas.panels[0])
    canvas.height = canvas.legend(legend, top + _HEIGHT + 36) + 4
    return canvas


def has_teacher(steps: Sequence[StepFacts]) -> bool:
    """Whether the steps logged the momentum of a teacher.

    Args:
        steps: The steps of one run.
    """
    return _logs(steps, "alpha")


def plot_teacher(label: str, steps: Sequence[StepFacts], e_min: Any, seed: int) -> Plot:
    """Plot the teacher of one run for a page.

    Args:
        label: Label of the run's row.
        steps: The steps of the run.
        e_min: Entropy below which the teacher is reset.
        seed: Seed of the run.
    """
    every = steps_per_point(steps)
    shown = ["mean entropy of the student's predictions"] if _logs(steps, "entropy") else []
    shown.append("momentum of the teacher")
    if _logs(steps, "teacher_reset"):
        shown.append(f"{len(resets_of(steps))} resets")
    listed = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return Plot(
        draw_teacher(steps, e_min),
        f"The teacher of {label}",
        f"Seed {seed}: {listed} in {len(steps)} steps." + (f" Means over {every} steps." if every > 1 else ""),
    )


def resets_of(steps: Sequence[StepFacts]) -> list[int]:
    """The indices of the steps in which the teacher was reset to the source.

    Args:
        steps: The steps of one run.
    """
    return [index for index, step in enumerate(steps) if step.get("teacher_reset")]


def _draw_entropy(canvas: Canvas, steps: Sequence[StepFacts], e_min: Any, top: float) -> _Legend:
    x, entropies = _means(steps, "entropy")
    limit = float(e_min) if _finite(e_min) else None
    high = above_zero([*entropies, limit or 0.0])
    panel = _add_panel(canvas, steps, top, (0, high))
    legend: _Legend = [("entropy", LineStyle(COLOURS[1]))]
    panel.line(x, entropies, LineStyle(COLOURS[1]))
    if limit is not None:
        legend.append((f"e_min = {limit:g}", LineStyle(COLOURS[3], "--")))
        panel.across(limit, LineStyle(COLOURS[3], "--"))
    panel.y_axis(nice_ticks(0, high), "entropy (nat)")
    panel.x_axis((tick, "") for tick, _ in nice_ticks(0, panel.x[1]))
    return legend


def _draw_momentum(canvas: Canvas, steps: Sequence[StepFacts], top: float) -> _Legend:
    x, alphas = _means(steps, "alpha")
    low, high = min(alphas, default=1.0), max(alphas, default=1.0)
    # Leave room for the resets at the bottom, and a scale on which a fixed momentum can be read.
    spare = max(0.18 * (high - low), 1e-3)
    scale = (low - spare, high + spare)
    panel = _add_panel(canvas, steps, top, scale)
    legend: _Legend = [("α", LineStyle(COLOURS[4]))]
    panel.line(x, alphas, LineStyle(COLOURS[4]))
    panel.y_axis(nice_ticks(*scale), "momentum α")
    if resets := resets_of(steps):
        every = steps_per_point(steps)
        blocks = sorted({index // every * every for index in resets})
        panel.strokes([(block, scale[0] + 0.05 * (scale[1] - scale[0])) for block in blocks], COLOURS[3], 7)
        legend.append(("reset", LineStyle(COLOURS[3], "-", width=0.8)))
    return legend


def _add_panel(canvas: Canvas, steps: Sequence[StepFacts], top: float, y: tuple[float, float]) -> Panel:
    box = Box(_LEFT, top, canvas.width - _LEFT - 8, _HEIGHT)
    return canvas.add(Panel(box, (-0.5, len(steps) - 0.5), y))


def _means(steps: Sequence[StepFacts], name: str) -> tuple[list[float], list[float]]:
    """Positions and means of a logged number over blocks of steps; what is not finite is left out."""
    every = steps_per_point(steps)
    x, y = [], []
    for begin in range(0, len(steps), every):
        known = [step[name] for step in steps[begin : begin + every] if _finite(step.get(name))]
        if known:
            x.append(begin + (every - 1) / 2)
            y.append(statistics.fmean(known))
    return x, y


def _logs(steps: Sequence[StepFacts], name: str) -> bool:
    """Whether any step logged a finite number of this name."""
    return any(_finite(step.get(name)) for step in steps)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
