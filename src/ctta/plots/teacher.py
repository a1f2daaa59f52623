"""A teacher with dynamic momentum along the stream: entropy, momentum, resets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctta.plots.canvas import WIDTH, Area, Canvas, Plot
from ctta.plots.elements import LineStyle
from ctta.plots.panel import Box, Panel, nice_ticks
from ctta.plots.stream_axis import mark_domains, room_for_names, steps_axis, steps_per_point, stretches_of
from ctta.plots.style import COLOURS

if TYPE_CHECKING:
    from ctta.bench.steps import StepFacts

#: Points left of a panel, for the labels of its axis.
_LEFT = 50.0


def draw_teacher(steps: Sequence[StepFacts], e_min: Any, *, width: float = WIDTH) -> Canvas:
    """Draw the entropy of the student with the reset threshold, and below it the teacher's momentum and resets.

    Args:
        steps: The steps of one run.
        e_min: Entropy below which the teacher is reset; anything but a number is not drawn.
        width: Width of the drawing in inches.
    """
    canvas, every, stretches = Canvas(width), steps_per_point(steps), stretches_of(steps)
    room, ends = room_for_names(stretches), (-0.5, len(steps) - 0.5)
    wide = canvas.width - _LEFT - 8
    x, entropies = _means(steps, "entropy", every)
    limit = float(e_min) if isinstance(e_min, (int, float)) else None
    high = 1.05 * max([*entropies, limit or 0.0]) or 1.0
    above = canvas.add(Panel(Box(_LEFT, 6 + room, wide, 110), ends, (0, high)))
    legend: list[tuple[str, LineStyle | Area]] = [("entropy", LineStyle(COLOURS[1]))]
    above.line(x, entropies, LineStyle(COLOURS[1]))
    if limit is not None:
        legend.append((f"e_min = {limit:g}", LineStyle(COLOURS[3], "--")))
        above.across(limit, LineStyle(COLOURS[3], "--"))
    above.y_axis(nice_ticks(0, high), "entropy (nat)")
    above.x_axis((tick, "") for tick, _ in nice_ticks(0, ends[1]))
    x, alphas = _means(steps, "alpha", every)
    # Leave room for the resets at the bottom, and a scale on which a fixed momentum can be read.
    spare = max(0.18 * (max(alphas) - min(alphas)), 1e-3)
    scale = (min(alphas) - spare, max(alphas) + spare)
    below = canvas.add(Panel(Box(_LEFT, above.box.top + 124, wide, 110), ends, scale))
    legend.append(("α", LineStyle(COLOURS[4])))
    below.line(x, alphas, LineStyle(COLOURS[4]))
    below.y_axis(nice_ticks(*scale), "momentum α")
    if resets := resets_of(steps):
        blocks = sorted({index // every * every for index in resets})
        below.strokes([(block, scale[0] + 0.05 * (scale[1] - scale[0])) for block in blocks], COLOURS[3], 7)
        legend.append(("reset", LineStyle(COLOURS[3], "-", width=0.8)))
    steps_axis(below, steps)
    for panel in (above, below):
        mark_domains(panel, stretches, names=panel is above)
    canvas.height = canvas.legend(legend, below.box.top + 110 + 36) + 4
    return canvas


def has_teacher(steps: Sequence[StepFacts]) -> bool:
    """Whether the steps logged the momentum of a teacher.

    Args:
        steps: The steps of one run.
    """
    return any("alpha" in step for step in steps)


def plot_teacher(label: str, steps: Sequence[StepFacts], e_min: Any, seed: int) -> Plot:
    """Plot the teacher of one run for a page.

    Args:
        label: Label of the run's row.
        steps: The steps of the run.
        e_min: Entropy below which the teacher is reset.
        seed: Seed of the run.
    """
    every = steps_per_point(steps)
    return Plot(
        draw_teacher(steps, e_min),
        f"The teacher of {label}",
        f"Seed {seed}: mean entropy of the student's predictions, momentum of its teacher, and "
        f"{len(resets_of(steps))} resets in {len(steps)} steps." + (f" Means over {every} steps." if every > 1 else ""),
    )


def resets_of(steps: Sequence[StepFacts]) -> list[int]:
    """The indices of the steps in which the teacher was reset to the source.

    Args:
        steps: The steps of one run.
    """
    return [index for index, step in enumerate(steps) if step.get("teacher_reset")]


def _means(steps: Sequence[StepFacts], name: str, every: int) -> tuple[list[float], list[float]]:
    """Positions and means of a logged number over blocks of steps."""
    x, y = [], []
    for begin in range(0, len(steps), every):
        known = [step[name] for step in steps[begin : begin + every] if step.get(name) is not None]
        if known:
            x.append(begin + (every - 1) / 2)
            y.append(statistics.fmean(known))
    return x, y
