"""Optimizers the field uses per benchmark, from which every method's recipe starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BENCHMARKS = ("cifar10-c", "cifar100-c", "imagenet-c", "domainnet-126")

# RMT, SANTA and DMSE contrast the 256-d bottleneck of DomainNet-126 as it is.
MLP_BUT_DOMAINNET = {"cifar10-c": "mlp", "cifar100-c": "mlp", "imagenet-c": "mlp", "domainnet-126": None}


def per_dataset(*, sgd_lr: float = 2.5e-4, **settings: Any) -> dict[str, Mapping[str, Any]]:
    """Adam 1e-3 on CIFAR, SGD on ImageNet-C and DomainNet-126, plus settings.

    A setting that differs between benchmarks is a dict from the benchmark's name to its value.
    """
    table: dict[str, Mapping[str, Any]] = {}
    for name in BENCHMARKS:
        small = name.startswith("cifar")
        optimizer = {"optimizer": "adam", "lr": 1e-3} if small else {"optimizer": "sgd", "lr": sgd_lr}
        own = {key: v[name] if isinstance(v, dict) else v for key, v in settings.items()}
        table[name] = optimizer | own
    return table
