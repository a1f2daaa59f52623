"""The controlled teacher along the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.experiments.cells import Outcome


def draw_teacher(outcomes: Sequence[Outcome]) -> Figure:
    """Entropy of the student, momentum and resets of the teacher, with the boundaries of domains."""
    raise NotImplementedError
