"""A teacher with dynamic momentum along the stream: entropy, momentum, resets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctta.plots.stream_axis import MOST_POINTS, WIDTH, legend_below, mark_domains, step_label, stretches_of
from ctta.plots.style import COLOURS, Plot, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.steps import StepFacts


def draw_teacher(steps: Sequence[StepFacts], e_min: Any, *, width: float = WIDTH) -> Figure:
    """Draw the entropy of the student with the reset threshold, and below it the teacher's momentum and resets.

    Args:
        steps: The steps of one run.
        e_min: Entropy below which the teacher is reset; anything but a number is not drawn.
        width: Width of the figure in inches.
    """
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
    # Leave room for the resets at the bottom, and a scale on which a fixed momentum can be read.
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
        f"Seed {seed}: mean entropy of the student's answers, momentum of its teacher, and "
        f"{len(resets_of(steps))} resets in {len(steps)} steps." + (f" Means over {every} steps." if every > 1 else ""),
    )


def resets_of(steps: Sequence[StepFacts]) -> list[int]:
    """The indices of the steps in which the teacher was reset to the source.

    Args:
        steps: The steps of one run.
    """
    return [place for place, step in enumerate(steps) if step.get("teacher_reset")]


def steps_per_point(steps: Sequence[StepFacts]) -> int:
    """How many steps one point of a line averages.

    Args:
        steps: The steps of one run.
    """
    return -(-len(steps) // MOST_POINTS)


def _means(steps: Sequence[StepFacts], name: str, every: int) -> tuple[list[float], list[float]]:
    """Positions and means of a logged number over blocks of steps."""
    x, y = [], []
    for begin in range(0, len(steps), every):
        known = [step[name] for step in steps[begin : begin + every] if step.get(name) is not None]
        if known:
            x.append(begin + (every - 1) / 2)
            y.append(statistics.fmean(known))
    return x, y
