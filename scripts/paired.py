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
from ctta.bench.folder import RunFolder
from ctta.errors import ParameterError


def main() -> None:
    """Print the difference between two runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    arguments = parser.parse_args()
    mean, error = difference(arguments.first, arguments.second)
    first, second = (label(RunFolder(path).read_record()) for path in (arguments.first, arguments.second))
    print(f"{first} - {second}: {mean:+.2f} ± {error:.2f} points")  # noqa: T201


def difference(first: Path, second: Path) -> tuple[float, float]:
    """The mean difference in error between two runs, and its standard error."""
    records = [RunFolder(path).read_record() for path in (first, second)]
    unlike = [*differences(records), *(["seed"] if len({record.spec.seed for record in records}) > 1 else [])]
    if unlike:
        raise ParameterError(f"The two runs must be on the same images. They differ in {', '.join(unlike)}.")
    pairs = zip(by_batch(first), by_batch(second), strict=True)
    found = [a - b for a, b in pairs]
    return statistics.fmean(found), statistics.stdev(found) / math.sqrt(len(found))


def by_batch(folder: Path) -> list[float]:
    """The error on the n-th batches of all domains, for every n; a domain that comes again counts as another."""
    wrong: dict[int, list[tuple[int, int]]] = {}
    domain, index = None, 0
    for step in RunFolder(folder).read_steps():
        index = index + 1 if (step["domain"], step["severity"]) == domain else 0
        domain = (step["domain"], step["severity"])
        wrong.setdefault(index, []).append((step["wrong"], step["images"]))
    return [100 * sum(w for w, _ in part) / sum(n for _, n in part) for part in wrong.values()]


if __name__ == "__main__":
    main()
