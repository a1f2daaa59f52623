"""Redraw the figures of docs/results.md from the run records below docs/results.

python scripts/figures.py                draw every figure whose runs exist
python scripts/figures.py gamma beta     draw the figures of these experiments

The prototypes are drawn from adapted models, which are not published: `ctta reproduce prototypes` draws them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ctta._system.files import write_atomically
from ctta.bench.folder import read_records
from ctta.bench.record import Record
from ctta.paper import Outcome, experiment
from ctta.paper.numbers import SETTINGS
from ctta.plots.style import svg
from results import matching

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
DATASET, MODEL = "cifar10-c", "cifar10_resnet20"
#: Experiments, with the images per corruption of their published runs.
FIGURES = {"alpha": 200, "beta": 500, "gamma": 500, "reset-thresholds": 500, "entropy": 2000, "teacher": 2000}


def main() -> None:
    """Draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="experiment", help=f"of {', '.join(FIGURES)}; all by default")
    names = parser.parse_args().names or list(FIGURES)
    records = read_records(RESULTS)
    for name in names:
        for drawing in experiment(name).drawings:
            path = RESULTS / "figures" / f"{drawing.name}_{DATASET}_{MODEL}.svg"
            write_atomically(
                path, svg(drawing.draw(outcomes(name, records)), f"{drawing.title}: {SETTINGS[DATASET].name}, {MODEL}")
            )
            print(path.relative_to(RESULTS.parent.parent))  # noqa: T201


def outcomes(name: str, records: Sequence[Record]) -> list[Outcome]:
    """Return the outcomes of an experiment from its published runs with its default seeds."""
    chosen = [record for record in records if str(record.spec.seed) == experiment(name).seeds]
    cells = experiment(name).cells(DATASET)
    return [Outcome(cell, matching(cell, DATASET, MODEL, FIGURES[name], chosen), RESULTS) for cell in cells]


if __name__ == "__main__":
    main()
