"""The horizontal axis of plots along a stream: steps, and the domains they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ctta.bench.steps import StepFacts
from ctta.plots.panel import Panel, nice_ticks
from ctta.plots.text import domain_name, text_width

#: Maximum number of points in a line, about as many as a phone can resolve.
MOST_POINTS = 250
#: How many domain names and boundaries fit along a stream.
_MOST_NAMES, _MOST_BOUNDARIES = 20, 80

#: A domain, its first step, and the step after its last.
Stretch = tuple[str, int, int]


def stretches_of(steps: Sequence[StepFacts]) -> list[Stretch]:
    """Split a stream into stretches of one domain each.

    Args:
        steps: The steps of a run.
    """
    found, begin = [], 0
    for domain, mine in groupby(steps, key=lambda step: str(step["domain"])):
        end = begin + sum(1 for _ in mine)
        found.append((domain, begin, end))
        begin = end
    return found


def steps_per_point(steps: Sequence[StepFacts]) -> int:
    """How many steps one point of a line stands for.

    Args:
        steps: The steps of one run.
    """
    return -(-len(steps) // MOST_POINTS)


def steps_axis(panel: Panel, steps: Sequence[StepFacts]) -> None:
    """Draw the axis of steps below a panel.

    Args:
        panel: The panel, whose horizontal axis counts steps.
        steps: The steps of a run.
    """
    images = max(step["images"] for step in steps)
    panel.x_axis(nice_ticks(0, panel.x[1]), f"step (one batch of {images} images)")


def room_for_names(stretches: Sequence[Stretch] | None) -> float:
    """Height in points that the names of the domains need above a panel.

    Args:
        stretches: The stretches of the stream; None if they are not the same in all runs.
    """
    if stretches is None or not 1 < len(stretches) <= _MOST_NAMES:
        return 0.0
    return 3 + max(text_width(domain_name(name), 7.5) for name, _, _ in stretches)


def mark_domains(panel: Panel, stretches: Sequence[Stretch], *, names: bool) -> bool:
    """Draw lines where the domain changes, and the names of the domains above the panel.

    Args:
        panel: The panel, whose horizontal axis counts steps.
        stretches: The stretches of the stream.
        names: Whether to write the names.

    Returns:
        Whether there are lines: a stream of one domain or of very many has none.
    """
    marked = 1 < len(stretches) <= _MOST_BOUNDARIES
    if marked:
        panel.boundaries(begin - 0.5 for _, begin, _ in stretches[1:])
    if names and 1 < len(stretches) <= _MOST_NAMES:
        panel.names_above(((begin + end - 1) / 2, domain_name(name)) for name, begin, end in stretches)
    return marked
