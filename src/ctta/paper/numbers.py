"""The numbers the paper publishes, by dataset and row; None if it publishes none."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Published:
    """A published result.

    Args:
        mean: Mean error in percent.
        domains: Error of each domain; empty if the paper does not give them.
        spread: Standard deviation over orders; None if the paper does not give it.
    """

    mean: float
    domains: dict[str, float] = field(default_factory=dict)
    spread: float | None = None

    def over(self, domains: Collection[str]) -> Published | None:
        """The result over some of the domains; None if the paper has no error for one of them.

        Args:
            domains: The domains to average over.
        """
        if not self.domains or set(domains) == set(self.domains):
            return self
        if not set(domains) <= set(self.domains):
            return None
        return Published(statistics.fmean(self.domains[d] for d in domains), {d: self.domains[d] for d in domains})


@dataclass(frozen=True)
class Setting:
    """How the paper runs a dataset.

    Args:
        name: Its name in the paper.
        stream: Our name for the data.
        backbone: The paper's source model.
        images: Images per domain; None means all.
        batch_size: Images per batch.
        other_data: What the data is, if the paper does not use it.
    """

    name: str
    stream: str
    backbone: str
    images: int | None
    batch_size: int
    other_data: str = ""


SETTINGS = {
    "cifar10-c": Setting("CIFAR10-C", "cifar10-c", "cifar10_wrn28_10", 10_000, 200),
    "cifar100-c": Setting("CIFAR100-C", "cifar100-c", "cifar100_resnext29", 10_000, 200),
    "imagenet-c-5k": Setting("ImageNet-C-5k", "imagenet-c", "imagenet_resnet50", 5_000, 64),
    "imagenet-c-50k": Setting("ImageNet-C-50k", "imagenet-c", "imagenet_resnet50", 50_000, 64),
    "domainnet-126": Setting("DomainNet-126", "domainnet-126", "domainnet126_resnet50", None, 128),
    # Not in the paper: bundled with ctta, so that every experiment can be tried without a download.
    "digits": Setting("digits", "digits", "digits_resnet8", None, 50, other_data="handwritten digits"),
}

#: The datasets whose domains are corruptions.
CORRUPTED = ("cifar10-c", "cifar100-c", "imagenet-c-5k", "imagenet-c-50k", "digits")


@cache
def results() -> dict[str, Any]:
    """Every published number, by table."""
    path = Path(__file__).parent / "results.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main_row(dataset: str, row: str) -> Published | None:
    """A row of the main table.

    Args:
        dataset: A key of SETTINGS.
        row: Label of the row.
    """
    table = results()["table_continual_corruptions_severity5"].get(SETTINGS[dataset].name)
    if table is None:
        return None
    found = (table["source_free"] | table["source_data"])[row]
    return Published(found["mean"], dict(zip(results()["corruptions"], found["per_corruption"], strict=True)))


def domainnet_row(row: str) -> Published | None:
    """A row of the DomainNet-126 table.

    Args:
        row: Label of the row.
    """
    table = results()["table_domainnet126_real_source"]
    if row not in table["rows"]:
        return None
    *domains, mean = table["rows"][row]
    return Published(mean, dict(zip(table["domains"], domains, strict=True)))


def orders_row(dataset: str, row: str) -> Published | None:
    """A row of the table of ten random orders.

    Args:
        dataset: A key of SETTINGS.
        row: Label of the row.
    """
    found = results()["table_ten_random_orders_imagenet_c_50k"].get(row)
    if dataset != "imagenet-c-50k" or found is None:
        return None
    mean, spread = found if isinstance(found, list) else (found, None)
    return Published(mean, spread=spread)


def gradual_row(dataset: str, row: str) -> Published | None:
    """A row of the table with gradually changing severities.

    Args:
        dataset: A key of SETTINGS.
        row: Label of the row.
    """
    return _published(results()["table_gradual_severity"].get(SETTINGS[dataset].name, {}).get(row))


def component(dataset: str, *, fixed_prototypes: bool, dynamic_momentum: bool) -> Published | None:
    """A cell of the component ablation.

    Args:
        dataset: A key of SETTINGS.
        fixed_prototypes: Whether prototypes stay fixed.
        dynamic_momentum: Whether the teacher's momentum is dynamic.
    """
    for row in results()["table_components"]:
        if (row["prototypes"] == "fixed") == fixed_prototypes and row["dynamic_momentum"] == dynamic_momentum:
            return _published(row.get(SETTINGS[dataset].name))
    return None


def loss(dataset: str, row: str) -> Published | None:
    """A cell of the table of losses.

    Args:
        dataset: A key of SETTINGS.
        row: "SCE" or "CE".
    """
    return _published(results()["table_sce_vs_ce"][row].get(SETTINGS[dataset].name))


def clean_source(dataset: str, row: str, *, learning: bool) -> Published | None:
    """A cell of the table of clean source images after the corruptions.

    Args:
        dataset: A key of SETTINGS.
        row: Label of the row.
        learning: Whether the method learns on the source images.
    """
    table = results()["table_clean_source_after_cifar100_c"]
    found = table["adapting_on_source" if learning else "no_adaptation_on_source"].get(row)
    return _published(found) if dataset == "cifar100-c" else None


def published_for(only: str, dataset: str, value: float | None) -> Published | None:
    """A number that is published for one dataset only.

    Args:
        only: The dataset it is published for.
        dataset: The dataset to look up.
        value: The number.
    """
    return _published(value) if dataset == only else None


def _published(mean: float | None) -> Published | None:
    return None if mean is None else Published(float(mean))
