"""The paper's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ctta.bench.workload import Procedure
from ctta.paper import numbers
from ctta.paper.drawings import draw_lines, draw_orders, draw_resets
from ctta.paper.experiment import Cell, Drawing, Experiment

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
#: Rows under the shorter names of the paper's other tables.
_SHORT = {"Source only": "Source", "BN + Adapt": "BN+Adapt", "RMT*": "RMT", "SANTA*": "SANTA"}
_STARS = "Paper silent: RMT and SANTA run without source data here, as in its source-free comparisons."
_SOURCE = "Rows with source data take its class means as prototypes; RMT has no warm-up and no replay of source images."
FIXED_MOMENTUM: dict[str, object] = {"alpha": 0.999, "teacher_reset": False}


def _main(dataset: str) -> list[Cell]:
    return [
        Cell(row, Procedure(method), numbers.main_row(dataset, row), source_data=source)
        for row, method, source in _ROWS
    ]


def _domainnet(dataset: str) -> list[Cell]:
    return [
        Cell(row, Procedure(method), numbers.domainnet_row(_SHORT.get(row, row)))
        for row, method, source in _ROWS
        if not source and method not in ("tent", "deyo")
    ]


def _samples(dataset: str) -> list[Cell]:
    table = numbers.results()["table_samples_per_corruption_imagenet_c"]
    sizes = table["samples"] if dataset.startswith("imagenet") else [200, 500, 1000, 2000, 5000, 10_000]
    published = dict(zip(table["samples"], zip(table["DMSE"], table["RDumb"], strict=True), strict=True))
    return [
        Cell(
            f"{row}, {size} images",
            Procedure(method),
            numbers.published_for("imagenet-c-50k", dataset, found[i]),
            images=size,
        )
        for i, (row, method) in enumerate((("DMSE", "dmse"), ("RDumb", "rdumb")))
        for size in sizes
        for found in [published.get(size, (None, None))]
    ]


def _orders(dataset: str) -> list[Cell]:
    return [
        Cell(row, Procedure(method, protocol="random-order"), numbers.orders_row(dataset, _SHORT.get(row, row)))
        for row, method, source in _ROWS
        if not source
    ]


def _gradual(dataset: str) -> list[Cell]:
    return [
        Cell(row, Procedure(method, protocol="gradual"), numbers.gradual_row(dataset, _SHORT.get(row, row)))
        for row, method, source in _ROWS
        if not source
    ]


def _components(dataset: str) -> list[Cell]:
    return [
        Cell(
            f"{'fixed' if fixed else 'moving'} prototypes, {'dynamic' if dynamic else 'fixed'} momentum",
            Procedure("dmse", ({"recalibrated": False} if fixed else {}) | ({} if dynamic else FIXED_MOMENTUM)),
            numbers.component(dataset, fixed_prototypes=fixed, dynamic_momentum=dynamic),
        )
        for fixed in (True, False)
        for dynamic in (False, True)
    ]


def _clean_source(dataset: str) -> list[Cell]:
    return [
        Cell(
            f"{row}, {condition}",
            Procedure(method, protocol="then-clean" if learning else "then-clean-resting"),
            numbers.clean_source(dataset, _SHORT.get(row, row), learning=learning),
            condition,
            domain="clean",
        )
        for learning, condition in ((False, "not learning on it"), (True, "learning on it"))
        for row, method, source in _ROWS
        if not source and method in ("source", "rmt", "santa", "dmse")
    ]


def _loss(dataset: str) -> list[Cell]:
    return [Cell(row, Procedure("dmse", {"loss": row.lower()}), numbers.loss(dataset, row)) for row in ("SCE", "CE")]


def _ablation(
    with_it: tuple[str, str], without: tuple[str, str], settings: dict[str, object], table: str
) -> Callable[[str], list[Cell]]:
    """DMSE with and without one part, published for ImageNet-C with 5,000 images.

    Each variant is a pair: its label here, and its key in the published table.
    """

    def cells(dataset: str) -> list[Cell]:
        found = numbers.results()[table]
        return [
            Cell(label, Procedure("dmse", changed), numbers.published_for("imagenet-c-5k", dataset, found[key]))
            for (label, key), changed in ((with_it, {}), (without, settings))
        ]

    return cells


def _reset_thresholds(dataset: str) -> list[Cell]:
    situations = {
        "as published": Procedure("dmse"),
        "learning rate x 5": Procedure("dmse", {"lr": 5e-3 if not dataset.startswith("imagenet") else 0.05}),
        "batches of 20": Procedure("dmse", batch_size=20),
        "severity 2": Procedure("dmse", severity=2),
        "classes in clumps": Procedure("dmse", protocol="correlated"),
        "three rounds": Procedure("dmse", protocol="recurring", times=3),
    }
    return [
        Cell(f"{label}: e_min {e_min}", replace(like, settings={"e_min": e_min, **like.settings}))
        for label, like in situations.items()
        for e_min in (0.0, 0.05, 0.1, 0.2, 0.4)
    ]


def _long(dataset: str) -> list[Cell]:
    # The paper's long stream is ImageNet-C with 50,000 images per domain; smaller datasets are repeated five times.
    found = numbers.results()["text_fixed_momentum_imagenet_c_50k"]
    long = Procedure("dmse") if dataset == "imagenet-c-50k" else Procedure("dmse", protocol="recurring", times=5)
    return [
        Cell(label, replace(long, settings=settings), numbers.published_for("imagenet-c-50k", dataset, found[key]))
        for label, settings, key in (
            ("dynamic momentum", {}, "dynamic"),
            ("momentum 0.999", FIXED_MOMENTUM, "fixed_0.999"),
        )
    ]


def _batch_sizes(dataset: str) -> list[Cell]:
    table = numbers.results()["table_batch_sizes_imagenet_c_5k"]
    return [
        Cell(
            f"{row}, batch {size}",
            Procedure(method, batch_size=size),
            numbers.published_for("imagenet-c-5k", dataset, table[row.removesuffix("*")][i]),
            f"batch {size}",
        )
        for row, method in (("RMT*", "rmt"), ("SANTA*", "santa"), ("DMSE", "dmse"))
        for i, size in enumerate(table["batch_sizes"])
    ]


def _grid(table: str, row: str, column: str) -> Callable[[str], list[Cell]]:
    def cells(dataset: str) -> list[Cell]:
        found = numbers.results()[table]
        return [
            Cell(
                f"{row} {value}, {column} {other}",
                Procedure("dmse", {row: float(value), column: other}),
                numbers.published_for("imagenet-c-5k", dataset, found[value][i]),
            )
            for value in found
            if value != column
            for i, other in enumerate(found[column])
        ]

    return cells


TABLES = (
    Experiment("main", "Continual corruptions at severity 5", _main, note=_SOURCE),
    Experiment("domainnet", "DomainNet-126 from real images", _domainnet, note=_STARS, datasets=("domainnet-126",)),
    Experiment(
        "samples",
        "Images per corruption, DMSE and RDumb",
        _samples,
        (
            Drawing(
                "samples", "Error by images per corruption", draw_lines("images", "images per corruption", log=True)
            ),
        ),
    ),
    Experiment(
        "orders",
        "Ten random orders of the corruptions",
        _orders,
        (Drawing("orders", "Error over random orders of the corruptions", draw_orders),),
        seeds="0..9",
        note=_STARS,
    ),
    Experiment("gradual", "Severities 1-2-3-4-5-4-3-2-1 for each corruption", _gradual, note=_STARS),
    Experiment("components", "Prototypes and momentum, fixed or moving", _components),
    Experiment("clean-source", "The clean source after the corruptions", _clean_source, note=_STARS),
    Experiment("loss", "Symmetric or plain cross-entropy", _loss),
    Experiment(
        "reset",
        "With and without the teacher's reset",
        _ablation(
            ("with reset", "with_reset"),
            ("without reset", "without_reset"),
            {"teacher_reset": False},
            "text_no_reset_imagenet_c_5k",
        ),
    ),
    Experiment(
        "reset-thresholds",
        "When the reset helps: thresholds e_min in six situations",
        _reset_thresholds,
        (Drawing("thresholds", "Error and share of batches that reset, by e_min", draw_resets),),
        note="Not in the paper.",
    ),
    Experiment(
        "projection",
        "With and without the projection",
        _ablation(
            ("with projection", "with_projection"),
            ("without projection", "without_projection"),
            {"projection": None},
            "text_no_projection_imagenet_c_5k",
        ),
    ),
    Experiment(
        "centre",
        "Nearest class in p_0 or in p_{t-1}",
        _ablation(
            ("static p_0", "static_p0"),
            ("dynamic p_{t-1}", "dynamic_previous"),
            {"centre": "dynamic"},
            "table_prototype_centre_imagenet_c_5k",
        ),
    ),
    Experiment("long", "Fixed momentum on a long stream", _long),
    Experiment("batch-sizes", "Batch sizes 16 to 128", _batch_sizes, note=_STARS),
    Experiment("alpha-e", "alpha_min by e_min", _grid("table_alpha_min_by_e_min_imagenet_c_5k", "alpha_min", "e_min")),
    Experiment("tau-lambda", "tau by lambda_cl", _grid("table_tau_by_lambda_cl_imagenet_c_5k", "tau", "lambda_cl")),
)
