"""The figures the paper publishes, by dataset and row."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

#: Names of our streams as the paper writes them.
DATASETS = {
    "cifar10-c": "CIFAR10-C",
    "cifar100-c": "CIFAR100-C",
    "imagenet-c-5k": "ImageNet-C-5k",
    "imagenet-c-50k": "ImageNet-C-50k",
}
#: Backbones of the published rows.
BACKBONES = {
    "cifar10-c": "cifar10_wrn28_10",
    "cifar100-c": "cifar100_resnext29",
    "imagenet-c-5k": "imagenet_resnet50",
    "imagenet-c-50k": "imagenet_resnet50",
}
#: Images per domain of the published rows.
IMAGES = {"cifar10-c": 10_000, "cifar100-c": 10_000, "imagenet-c-5k": 5_000, "imagenet-c-50k": 50_000}


@cache
def results() -> dict[str, Any]:
    """Every published figure."""
    path = Path(__file__).parents[1] / "data" / "paper_results.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main_row(dataset: str, row: str) -> float:
    """The mean error of a row of the main table."""
    table = results()["table_continual_corruptions_severity5"][DATASETS[dataset]]
    return float((table["source_free"] | table["source_data"])[row]["mean"])


def gradual_row(dataset: str, row: str) -> float | None:
    """The error of a row of the table with gradually changing severities; None where it is not published."""
    found = results()["table_gradual_severity"].get(DATASETS[dataset], {}).get(row)
    return None if found is None else float(found)


def component(dataset: str, *, fixed_prototypes: bool, dynamic_momentum: bool) -> float | None:
    """A cell of the component ablation."""
    for row in results()["table_components"]:
        if (row["prototypes"] == "fixed") == fixed_prototypes and row["dynamic_momentum"] == dynamic_momentum:
            return float(row[DATASETS[dataset]]) if DATASETS[dataset] in row else None
    return None


def only_5k(dataset: str, value: float) -> float | None:
    """A figure published for ImageNet-C with 5,000 images alone."""
    return value if dataset == "imagenet-c-5k" else None
