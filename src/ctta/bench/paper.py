"""The figures the paper publishes, by dataset and row; None where it publishes none."""

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
    """What the paper found: a mean error, and where it says so the error per domain and the spread over orders."""

    mean: float
    domains: dict[str, float] = field(default_factory=dict)
    spread: float | None = None

    def over(self, domains: Collection[str]) -> Published | None:
        """The figures for some of the domains; None where the paper has no error for one of them."""
        if not self.domains or set(domains) == set(self.domains):
            return self
        if not set(domains) <= set(self.domains):
            return None
        return Published(statistics.fmean(self.domains[d] for d in domains), {d: self.domains[d] for d in domains})


@dataclass(frozen=True)
class Setting:
    """How the paper runs a dataset: its name there, our stream, the backbone, images per domain and batch size."""

    name: str
    stream: str
    backbone: str
    images: int | None
    batch_size: int


SETTINGS = {
    "cifar10-c": Setting("CIFAR10-C", "cifar10-c", "cifar10_wrn28_10", 10_000, 200),
    "cifar100-c": Setting("CIFAR100-C", "cifar100-c", "cifar100_resnext29", 10_000, 200),
    "imagenet-c-5k": Setting("ImageNet-C-5k", "imagenet-c", "imagenet_resnet50", 5_000, 64),
    "imagenet-c-50k": Setting("ImageNet-C-50k", "imagenet-c", "imagenet_resnet50", 50_000, 64),
    "domainnet-126": Setting("DomainNet-126", "domainnet-126", "domainnet126_resnet50", None, 128),
    # Not the paper's: it comes with ctta, so that every experiment can be tried without a download.
    "digits": Setting("digits", "digits", "digits_resnet8", None, 50),
}

#: The datasets whose domains are corruptions.
CORRUPTED = ("cifar10-c", "cifar100-c", "imagenet-c-5k", "imagenet-c-50k", "digits")


@cache
def results() -> dict[str, Any]:
    """Every published figure."""
    path = Path(__file__).parents[1] / "data" / "paper_results.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main_row(dataset: str, row: str) -> Published | None:
    """A row of the main table."""
    table = results()["table_continual_corruptions_severity5"].get(SETTINGS[dataset].name)
    if table is None:
        return None
    found = (table["source_free"] | table["source_data"])[row]
    return Published(found["mean"], dict(zip(results()["corruptions"], found["per_corruption"], strict=True)))


def domainnet_row(row: str) -> Published | None:
    """A row of the DomainNet-126 table."""
    table = results()["table_domainnet126_real_source"]
    if row not in table["rows"]:
        return None
    *domains, mean = table["rows"][row]
    return Published(mean, dict(zip(table["domains"], domains, strict=True)))


def orders_row(dataset: str, row: str) -> Published | None:
    """A row of the table of ten random orders."""
    found = results()["table_ten_random_orders_imagenet_c_50k"].get(row)
    if dataset != "imagenet-c-50k" or found is None:
        return None
    mean, spread = found if isinstance(found, list) else (found, None)
    return Published(mean, spread=spread)


def gradual_row(dataset: str, row: str) -> Published | None:
    """A row of the table with gradually changing severities."""
    return _published(results()["table_gradual_severity"].get(SETTINGS[dataset].name, {}).get(row))


def component(dataset: str, *, fixed_prototypes: bool, dynamic_momentum: bool) -> Published | None:
    """A cell of the component ablation."""
    for row in results()["table_components"]:
        if (row["prototypes"] == "fixed") == fixed_prototypes and row["dynamic_momentum"] == dynamic_momentum:
            return _published(row.get(SETTINGS[dataset].name))
    return None


def loss(dataset: str, row: str) -> Published | None:
    """A cell of the table of losses."""
    return _published(results()["table_sce_vs_ce"][row].get(SETTINGS[dataset].name))


def clean_source(dataset: str, row: str, *, learning: bool) -> Published | None:
    """A cell of the table of the clean source after the corruptions."""
    table = results()["table_clean_source_after_cifar100_c"]
    found = table["adapting_on_source" if learning else "no_adaptation_on_source"].get(row)
    return _published(found) if dataset == "cifar100-c" else None


def of(only: str, dataset: str, value: float | None) -> Published | None:
    """A figure published for one dataset alone."""
    return _published(value) if dataset == only else None


def _published(mean: float | None) -> Published | None:
    return None if mean is None else Published(float(mean))
