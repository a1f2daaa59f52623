"""Redraw the figures of docs/results.md from the run records below docs/results.

python scripts/figures.py                draw every figure whose runs exist
python scripts/figures.py gamma beta     draw the figures of these experiments

"tradeoff" and "tradeoff-ccc" are the error of every method against the cost of a step, which
``python -m benchmarks --only step --networks resnet20 --precisions fp32 --rounds 3 --keep-freed-memory`` measures with
``--json docs/results/costs.json``. The prototypes are drawn from adapted models, which are not published: `ctta
reproduce prototypes` draws them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from ctta._system.files import write_atomically
from ctta.bench.compare import label_of
from ctta.bench.folder import read_records
from ctta.bench.record import Record
from ctta.cli.options import parse_seeds
from ctta.paper import Outcome, experiment
from ctta.paper.numbers import SETTINGS
from ctta.plots.style import svg
from ctta.plots.tradeoff import Method, plot_error_by_cost
from results import COSTS, costs_of_steps, matching, usual_runs

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
DATASET, MODEL = "cifar10-c", "cifar10_resnet20"
#: Experiments, with the images per corruption of their published runs; those of "samples" have numbers of their own.
FIGURES = {
    "alpha": 200,
    "beta": 500,
    "gamma": 500,
    "reset-thresholds": 500,
    "samples": None,
    "orders": 500,
    "entropy": 2000,
    "teacher": 2000,
}
#: The runs of each figure of error against cost.
TRADEOFFS: dict[str, Callable[[Sequence[Record]], list[Record]]] = {
    "tradeoff": lambda records: usual_runs(records, DATASET, MODEL, 2000),
    "tradeoff-ccc": lambda records: [
        r for r in records if (r.spec.protocol_name, r.spec.model_name, r.spec.images) == ("ccc", MODEL, 30000)
    ],
}


def main() -> None:
    """Draw the figures."""
    known = [*FIGURES, *(TRADEOFFS if COSTS.exists() else [])]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="figure", help=f"of {', '.join(known)}; all by default")
    names = parser.parse_args().names or known
    records = read_records(RESULTS)
    for name in names:
        if name in TRADEOFFS:
            _write(name, plot_error_by_cost(methods_by_cost(TRADEOFFS[name](records))).svg())
            continue
        for drawing in experiment(name).drawings:
            title = f"{drawing.title}: {SETTINGS[DATASET].name}, {MODEL}"
            _write(drawing.name, svg(drawing.draw(outcomes(name, records)), title))


def _write(name: str, figure: bytes) -> None:
    path = RESULTS / "figures" / f"{name}_{DATASET}_{MODEL}.svg"
    write_atomically(path, figure)
    print(path.relative_to(RESULTS.parent.parent))  # noqa: T201


def outcomes(name: str, records: Sequence[Record]) -> list[Outcome]:
    """Return the outcomes of an experiment from its published runs with its default seeds, for cells that have some."""
    seeds = parse_seeds(experiment(name).seeds)
    chosen = [record for record in records if record.spec.seed in seeds]
    cells = experiment(name).cells(DATASET)
    runs = [(cell, matching(cell, DATASET, MODEL, FIGURES[name], chosen)) for cell in cells]
    return [Outcome(cell, of_cell, RESULTS) for cell, of_cell in runs if of_cell]


def methods_by_cost(found: Sequence[Record]) -> list[Method]:
    """Return every method, or form of one, with a measured cost.

    Those that are no better than the source are put at its error, so that the others have room, and their own error is
    part of their names.

    Args:
        found: The runs on one stream.
    """
    costs = costs_of_steps()
    runs = {label_of(run.spec, source_free=True): run for run in found}
    source = runs["source"].mean
    shown = []
    for label, run in runs.items():
        if label in costs:
            name = label_of(run.spec, source_free=True, predicts_first=run.predicts_first)
            known = name if run.mean < source else f"{name} ({run.mean:.1f})"
            shown.append(Method(known, costs[label], min(run.mean, source)))
    return shown


if __name__ == "__main__":
    main()
