"""The meter of a stream: the counters and last values of its thread, for any thread to read."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ctta.adapter import Step
from ctta.serve.learner import Learner
from ctta.serve.types import Mode

#: Number of requests whose latency is remembered.
_LATENCIES = 256
#: Name under which methods log their momentum.
ALPHA = "alpha"


@dataclass(frozen=True)
class Reading:
    """The numbers of a stream at one moment.

    Args:
        mode: The stream's mode.
        steps: Steps learnt by the adapter that learns.
        skipped: Steps that were not finite.
        guard: The guard's phase; "off" without rules.
        answered: Images answered.
        learnt: Batches learnt from.
        shed: Batches not learnt from because requests were waiting.
        resets: Resets by the method, by the guard and manual ones.
        failures: Batches that failed to be answered or learnt from.
        seen: The last signals by name, and the method's alpha.
        latency: Median seconds to answer the last requests; None before the first.
    """

    mode: Mode
    steps: int = 0
    skipped: int = 0
    guard: str = "ok"
    answered: int = 0
    learnt: int = 0
    shed: int = 0
    resets: int = 0
    failures: int = 0
    seen: dict[str, float] = field(default_factory=dict)
    latency: float | None = None


class Meter:
    """Counts what happens to one stream.

    Args:
        mode: The mode in which the stream starts.
        steps: Steps learnt earlier.
    """

    def __init__(self, mode: Mode, steps: int = 0) -> None:
        self._lock = threading.Lock()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self._seen: dict[str, float] = {}
        self._mode: Mode = mode
        self._steps = steps
        self._skipped = 0
        self._guard = "ok"
        self._answered = 0
        self._learnt = 0
        self._shed = 0
        self._resets = 0
        self._failures = 0

    def read(self) -> Reading:
        """Return all numbers."""
        with self._lock:
            return Reading(
                mode=self._mode,
                steps=self._steps,
                skipped=self._skipped,
                guard=self._guard,
                answered=self._answered,
                learnt=self._learnt,
                shed=self._shed,
                resets=self._resets,
                failures=self._failures,
                seen=dict(self._seen),
                latency=statistics.median(self._latencies) if self._latencies else None,
            )

    def answer_time(self) -> float:
        """Return the median seconds to answer; one second before the first answer."""
        with self._lock:
            return statistics.median(self._latencies) if self._latencies else 1.0

    def follow(self, learner: Learner) -> None:
        """Copy the mode, the counters and the guard's phase of a learner.

        Args:
            learner: The stream's learner.
        """
        adapter = learner.adapter
        with self._lock:
            self._mode = learner.mode
            self._steps = adapter.steps
            self._skipped = adapter.skipped
            self._guard = adapter.watch.phase if adapter.watch.rules else "off"

    def add_answer(self, images: int, seconds: float) -> None:
        """Count an answered request.

        Args:
            images: Its images.
            seconds: How long it waited for the answer.
        """
        with self._lock:
            self._answered += images
            self._latencies.append(seconds)

    def recall(self, seen: Mapping[str, float]) -> None:
        """Replace the last signals by those of another state.

        Args:
            seen: The signals by name; empty if they are not known.
        """
        with self._lock:
            self._seen = dict(seen)

    def add_step(self, learner: Learner, step: Step, *, learnt: bool) -> dict[str, float]:
        """Count a batch that was given to the adapter, and return its signals by name.

        Args:
            learner: The learner that has the adapter.
            step: What learning returned.
            learnt: Whether the adapter learnt from it: neither the guard nor an incomplete window held it back.
        """
        adapter = learner.adapter
        signals = {} if adapter.signals is None else adapter.signals.values()
        with self._lock:
            self._learnt += int(learnt)
            self._resets += int(adapter.verdict.restore is not None) + int(step.log.get("teacher_reset", 0))
            self._seen |= signals
            if ALPHA in step.log:
                self._seen[ALPHA] = float(step.log[ALPHA])
        self.follow(learner)
        return signals

    def add_shed(self) -> None:
        """Count a batch that was not learnt from because requests were waiting."""
        with self._lock:
            self._shed += 1

    def add_reset(self) -> None:
        """Count a manual reset."""
        with self._lock:
            self._resets += 1

    def add_failure(self) -> None:
        """Count a batch that failed to be answered or learnt from."""
        with self._lock:
            self._failures += 1
