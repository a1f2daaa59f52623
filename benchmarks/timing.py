"""Interleaved timing: every function runs once per round, so that a busy machine slows all of them down alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Work = Callable[[], object]


class Seconds(NamedTuple):
    """CPU time of all threads, and wall-clock time."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Rounds:
    """Times of several functions, measured round by round.

    Args:
        times: For each function, one time per round.
    """

    times: Mapping[str, list[Seconds]]

    def median(self, name: str) -> Seconds:
        """Return the median CPU time and the median wall-clock time of a function."""
        return Seconds(*(statistics.median(column) for column in zip(*self.times[name], strict=True)))

    def ratio(self, name: str, base: str) -> Seconds:
        """Return the median over rounds of the ratio between the times of two functions in the same round."""
        pairs = list(zip(self.times[name], self.times[base], strict=True))
        return Seconds(
            statistics.median(one.cpu / other.cpu for one, other in pairs),
            statistics.median(one.wall / other.wall for one, other in pairs),
        )


def interleave(works: Mapping[str, Work], rounds: int) -> Rounds:
    """Time functions in turn, after a warm-up round.

    Args:
        works: Functions by name.
        rounds: Number of rounds.
    """
    times: dict[str, list[Seconds]] = {name: [] for name in works}
    for counted in (False, *[True] * rounds):
        for name, work in works.items():
            seconds = time_once(work)
            if counted:
                times[name].append(seconds)
    return Rounds(times)


def time_once(work: Work) -> Seconds:
    """Time one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall)
