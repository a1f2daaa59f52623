"""Compute the difference in error between two runs on the same images, with its standard error.

python scripts/paired.py docs/results/ADDRESS docs/results/ADDRESS

All domains of a stream show the same images in the same order, so the predictions for one image are not independent.
The n-th batches of all domains therefore count as one observation: the standard error is that of the mean difference
over these observations.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

from ctta.bench.compare import differences, label
from ctta.bench.record import read_record
from ctta.bench.steps import read_steps
from ctta.errors import ParameterError


def main() -> None:
    """Print the difference between two runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    arguments = parser.parse_args()
    mean, error = difference(arguments.first, arguments.second)
    first, second = (label(read_record(folder)) for folder in (arguments.first, arguments.second))
    print(f"{first} - {second}: {mean:+.2f} ± {error:.2f} points")  # noqa: T201


def difference(first: Path, second: Path) -> tuple[float, float]:
    """Compute the mean difference in error between two runs, and its standard error.

    Args:
        first: Folder of a run.
        second: Folder of the run to subtract.
    """
    records = [read_record(folder) for folder in (first, second)]
    unlike = [*differences(records), *(["seed"] if len({record["spec"]["seed"] for record in records}) > 1 else [])]
    if unlike:
        raise ParameterError(f"The two runs must be on the same images. They differ in {', '.join(unlike)}.")
    pairs = zip(by_batch(first), by_batch(second), strict=True)
    found = [a - b for a, b in pairs]
    return statistics.fmean(found), statistics.stdev(found) / math.sqrt(len(found))


def by_batch(folder: Path) -> list[float]:
    """Compute, for every n, the error on the n-th batches of all domains; a recurring domain counts anew each time.

    Args:
        folder: Folder of a run.
    """
    incorrect: dict[int, list[tuple[int, int]]] = {}
    domain, number = None, 0
    for step in read_steps(folder):
        number = number + 1 if (step["domain"], step["severity"]) == domain else 0
        domain = (step["domain"], step["severity"])
        incorrect.setdefault(number, []).append((step["wrong"], step["images"]))
    return [100 * sum(w for w, _ in part) / sum(n for _, n in part) for part in incorrect.values()]


if __name__ == "__main__":
    main()
