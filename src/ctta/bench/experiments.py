"""The paper's experiments as declarations: which runs stand behind a table, and what the paper found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ctta.bench import paper
from ctta.errors import UnknownName


@dataclass(frozen=True)
class Cell:
    """One run of a table and the figure published for it."""

    label: str
    method: str
    published: float | None
    settings: dict[str, Any] = field(default_factory=dict)
    source_data: bool = False
    protocol: str = "continual"
    batch_size: int | None = None


@dataclass(frozen=True)
class Experiment:
    """A table of the paper: its cells for a dataset."""

    name: str
    title: str
    cells: Callable[[str], list[Cell]]


class UnknownExperiment(UnknownName):
    """No experiment has this name."""

    kind = "experiment"
    see = " See: ctta ls experiments"


_ROWS = (
    ("Source only", "source", False),
    ("BN + Adapt", "bn", False),
    ("TENT-cont.", "tent", False),
    ("DeYO-cont.", "deyo", False),
    ("CoTTA", "cotta", False),
    ("RDumb", "rdumb", False),
    ("RMT*", "rmt", False),
    ("SANTA*", "santa", False),
    ("DMSE", "dmse", False),
    ("RMT", "rmt", True),
    ("SANTA", "santa", True),
    ("DMSE^s", "dmse", True),
)


def _main(dataset: str) -> list[Cell]:
    return [Cell(row, method, paper.main_row(dataset, row), source_data=source) for row, method, source in _ROWS]


def _gradual(dataset: str) -> list[Cell]:
    named = {"Source only": "Source", "BN + Adapt": "BN+Adapt", "RMT*": "RMT", "SANTA*": "SANTA"}
    return [
        Cell(row, method, paper.gradual_row(dataset, named.get(row, row)), protocol="gradual")
        for row, method, source in _ROWS
        if not source
    ]


def _components(dataset: str) -> list[Cell]:
    return [
        Cell(
            f"{'fixed' if fixed else 'moving'} prototypes, {'dynamic' if dynamic else 'fixed'} momentum",
            "dmse",
            paper.component(dataset, fixed_prototypes=fixed, dynamic_momentum=dynamic),
            ({"recalibrated": False} if fixed else {}) | ({} if dynamic else {"alpha": 0.999, "teacher_reset": False}),
        )
        for fixed in (True, False)
        for dynamic in (False, True)
    ]


def _loss(dataset: str) -> list[Cell]:
    published = {row: paper.results()["table_sce_vs_ce"][row].get(paper.DATASETS[dataset]) for row in ("SCE", "CE")}
    return [Cell("SCE", "dmse", published["SCE"]), Cell("CE", "dmse", published["CE"], {"loss": "ce"})]


def _reset(dataset: str) -> list[Cell]:
    return [
        Cell("with reset", "dmse", paper.only_5k(dataset, 58.1)),
        Cell("without reset", "dmse", paper.only_5k(dataset, 59.9), {"teacher_reset": False}),
        *(Cell(f"e_min {e}", "dmse", None, {"e_min": e}) for e in (0.05, 0.1)),
    ]


def _projection(dataset: str) -> list[Cell]:
    return [
        Cell("with projection", "dmse", paper.only_5k(dataset, 58.1)),
        Cell("without projection", "dmse", paper.only_5k(dataset, 60.6), {"projection": None}),
    ]


def _centre(dataset: str) -> list[Cell]:
    return [
        Cell("static p_0", "dmse", paper.only_5k(dataset, 58.1)),
        Cell("dynamic p_{t-1}", "dmse", paper.only_5k(dataset, 59.1), {"centre": "dynamic"}),
    ]


def _batch_sizes(dataset: str) -> list[Cell]:
    table = paper.results()["table_batch_sizes_imagenet_c_5k"]
    return [
        Cell(f"{row} batch {size}", method, paper.only_5k(dataset, table[row][i]), batch_size=size)
        for row, method in (("RMT", "rmt"), ("SANTA", "santa"), ("DMSE", "dmse"))
        for i, size in enumerate(table["batch_sizes"])
    ]


def _grid(table: str, row: str, column: str, columns: str) -> Callable[[str], list[Cell]]:
    def cells(dataset: str) -> list[Cell]:
        found = paper.results()[table]
        return [
            Cell(
                f"{row} {value}, {column} {other}",
                "dmse",
                paper.only_5k(dataset, found[value][i]),
                {row: float(value), column: other},
            )
            for value in found
            if value != columns
            for i, other in enumerate(found[columns])
        ]

    return cells


EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment("main", "Continual corruptions at severity 5", _main),
        Experiment("gradual", "Severities 1-2-3-4-5-4-3-2-1 for each corruption", _gradual),
        Experiment("components", "Prototypes and momentum, fixed or moving", _components),
        Experiment("loss", "Symmetric or plain cross-entropy", _loss),
        Experiment("reset", "With and without the teacher's reset", _reset),
        Experiment("projection", "With and without the projection", _projection),
        Experiment("centre", "Nearest class in p_0 or in p_{t-1}", _centre),
        Experiment("batch-sizes", "Batch sizes 16 to 128", _batch_sizes),
        Experiment(
            "alpha-e",
            "alpha_min by e_min",
            _grid("table_alpha_min_by_e_min_imagenet_c_5k", "alpha_min", "e_min", "e_min"),
        ),
        Experiment(
            "tau-lambda",
            "tau by lambda_cl",
            _grid("table_tau_by_lambda_cl_imagenet_c_5k", "tau", "lambda_cl", "lambda_cl"),
        ),
    )
}


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(name, EXPERIMENTS)
    return EXPERIMENTS[name]
