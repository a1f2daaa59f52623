"""The path from one corruption to the next along which the source's mean accuracy is nearest to a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class _Rest(NamedTuple):
    """The best path from a point of the grid to the end: its summed accuracy, number of points, and next point."""

    total: float
    points: int
    following: tuple[int, int] | None

    def mean_after(self, accuracy: float) -> float:
        return (accuracy + self.total) / (1 + self.points)


def transition(accuracy: Sequence[Sequence[float]], target: float) -> list[tuple[int, int]]:
    """Return the points of a transition between two corruptions, as numbers of their severities.

    The path begins with the first corruption alone, at the point (i, 0), and ends with the second alone, at (0, j). At
    each step either the first falls by one or the second rises by one: whichever leads to a path whose mean accuracy is
    nearer the target, which dynamic programming finds from the end. The path begins at the i whose mean is nearest. In
    case of a tie, the second rises, and the smaller i is used.

    Args:
        accuracy: ``accuracy[a][b]`` in percent with the first corruption at its severity number a and the second at its
            number b; 0 is no corruption.
        target: The mean accuracy to stay near, in percent.

    Example:
        >>> from ctta.streams.ccc_path import transition
        >>> transition([[90, 60, 30], [60, 40, 20], [30, 20, 10]], target=40)
        [(1, 0), (1, 1), (1, 2), (0, 2)]
    """
    size = len(accuracy)
    rest: dict[tuple[int, int], _Rest] = {}
    for a in range(size):
        for b in reversed(range(size)):
            here = accuracy[a][b]
            if a == 0:
                rest[a, b] = _Rest(here, 1, None)
                continue
            ways = [(a, b + 1), (a - 1, b)] if b + 1 < size else [(a - 1, b)]
            chosen = min(ways, key=lambda way: abs(rest[way].mean_after(here) - target))
            rest[a, b] = _Rest(here + rest[chosen].total, 1 + rest[chosen].points, chosen)
    point: tuple[int, int] | None = min(
        ((a, 0) for a in range(1, size)), key=lambda start: abs(rest[start].total / rest[start].points - target)
    )
    path = []
    while point is not None:
        path.append(point)
        point = rest[point].following
    return path
