"""Outcomes of many injected faults."""

from __future__ import annotations

from collections import Counter


class Tally:
    """Counts of outcomes, and the problems, which must never happen."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def saw(self, what: str) -> None:
        self.counts[what] += 1

    def problem(self, what: str) -> None:
        self.problems.append(what)

    def report(self, name: str) -> None:
        """Print the counts; raise AssertionError if there are problems."""
        told = ", ".join(f"{what} {count}" for what, count in sorted(self.counts.items()))
        print(f"{name}: {told}; {len(self.problems)} problems", flush=True)
        assert not self.problems, "\n".join(self.problems[:20])
