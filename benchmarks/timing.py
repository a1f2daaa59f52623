"""Ratios of times: the two things compared take turns, and the median over the rounds counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

Work = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds of one call: of this process on the processor, and on the clock."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Ratio:
    """How long a call takes in units of another one beside it, and both in milliseconds (medians over the rounds)."""

    cpu: float
    wall: float
    cpu_ms: float
    wall_ms: float
    lowest: float
    highest: float

    @property
    def details(self) -> dict[str, float]:
        return {"wall": self.wall, "low": self.lowest, "high": self.highest, "ms": self.cpu_ms}


def once(work: Work) -> Times:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Times(time.process_time() - cpu, time.perf_counter() - wall)


def beside(base: Work, works: Mapping[str, Work], rounds: int) -> dict[str, Ratio]:
    """Every work in units of the base, which runs right before it: a busy machine disturbs both alike."""
    samples: dict[str, list[tuple[Times, Times]]] = {name: [] for name in works}
    for warm_up in (base, *works.values()):
        warm_up()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, work in works.items():
                samples[name].append((once(base), once(work)))
    finally:
        gc.enable()
    return {name: _ratio(pairs) for name, pairs in samples.items()}


def _ratio(pairs: list[tuple[Times, Times]]) -> Ratio:
    # A clock of coarse resolution may give 0 for a call that is over at once.
    cpu = [work.cpu / max(base.cpu, 1e-9) for base, work in pairs]
    return Ratio(
        cpu=median(cpu),
        wall=median(work.wall / max(base.wall, 1e-9) for base, work in pairs),
        cpu_ms=1e3 * median(work.cpu for _, work in pairs),
        wall_ms=1e3 * median(work.wall for _, work in pairs),
        lowest=min(cpu),
        highest=max(cpu),
    )
