"""Interleaved timing: every work once per round, so that a busy machine disturbs all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Work = Callable[[], object]


class Seconds(NamedTuple):
    """CPU time of all threads, and wall time."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Rounds:
    """Times of several works, taken round by round."""

    times: Mapping[str, list[Seconds]]

    def median(self, name: str) -> Seconds:
        """The middle of a work's CPU times, and of its wall times."""
        return Seconds(*(statistics.median(column) for column in zip(*self.times[name], strict=True)))

    def ratio(self, name: str, base: str) -> Seconds:
        """Median over the rounds of a work's time in units of another's in the same round."""
        pairs = list(zip(self.times[name], self.times[base], strict=True))
        return Seconds(
            statistics.median(one.cpu / other.cpu for one, other in pairs),
            statistics.median(one.wall / other.wall for one, other in pairs),
        )


def interleave(works: Mapping[str, Work], rounds: int) -> Rounds:
    """Time works in turn, ``rounds`` times, after a round that is not counted."""
    times: dict[str, list[Seconds]] = {name: [] for name in works}
    for counted in (False, *[True] * rounds):
        for name, work in works.items():
            seconds = time_once(work)
            if counted:
                times[name].append(seconds)
    return Rounds(times)


def time_once(work: Work) -> Seconds:
    """Time of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Seconds(time.process_time() - cpu, time.perf_counter() - wall)
