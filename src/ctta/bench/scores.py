"""Errors of a run by domain, and the mean and spread of several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Count:
    """Predictions in one domain.

    Args:
        images: Number of images.
        wrong: Number of incorrect predictions.
    """

    images: int
    wrong: int

    @property
    def error(self) -> float:
        """The share of incorrect predictions in percent."""
        return 100 * self.wrong / self.images


@dataclass(frozen=True)
class Scores:
    """Errors of one run, by domain.

    Args:
        counts: Images and incorrect predictions by domain, in order of first appearance.
    """

    counts: Mapping[str, Count]

    @classmethod
    def of_steps(cls, steps: Iterable[Mapping[str, Any]]) -> Scores:
        """Sum the counts of the steps of a run.

        Args:
            steps: The log of every step, with its domain, images and incorrect predictions.
        """
        images: dict[str, int] = {}
        wrong: dict[str, int] = {}
        for step in steps:
            domain = step["domain"]
            images[domain] = images.get(domain, 0) + step["images"]
            wrong[domain] = wrong.get(domain, 0) + step["wrong"]
        return cls({domain: Count(images[domain], wrong[domain]) for domain in images})

    @property
    def errors(self) -> dict[str, float]:
        """The error of each domain in percent."""
        return {domain: count.error for domain, count in self.counts.items()}

    @property
    def mean(self) -> float:
        """The unweighted mean error over domains."""
        return sum(self.errors.values()) / len(self.counts)

    @property
    def images(self) -> int:
        """Number of images in all domains."""
        return sum(count.images for count in self.counts.values())


def rounds_of(steps: Sequence[Mapping[str, Any]], total: int, times: int | None) -> tuple[float, ...] | None:
    """Return the error of every round of a stream that repeats: the mean over the domains of that round.

    Args:
        steps: The log of every step so far.
        total: Steps of the whole stream.
        times: Rounds of the stream; None if it does not repeat.

    Returns:
        The errors in percent of the rounds that have ended, or None.
    """
    if times is None:
        return None
    length = total // times
    ended = range(len(steps) // length)
    return tuple(Scores.of_steps(steps[length * i : length * (i + 1)]).mean for i in ended)


@dataclass(frozen=True)
class SeedScores:
    """Errors of runs that differ only in their seed.

    Args:
        errors: Mean error of each domain over the runs.
        mean: Mean of the runs' errors.
        spread: Standard deviation of the runs' errors; None with one run.
    """

    errors: dict[str, float]
    mean: float
    spread: float | None

    @classmethod
    def of_runs(cls, errors: Sequence[Mapping[str, float]], means: Sequence[float]) -> SeedScores:
        """Average runs over their seeds.

        Args:
            errors: Error by domain, for each run. A domain that one of the runs lacks has the mean NaN.
            means: The overall error of each run.
        """
        return cls(
            errors={d: statistics.fmean(run.get(d, float("nan")) for run in errors) for d in errors[0]},
            mean=statistics.fmean(means),
            spread=statistics.stdev(means) if len(means) > 1 else None,
        )
