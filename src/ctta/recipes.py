"""Recipes: the constructor arguments published for each benchmark.

Each method declares its own with `per_dataset`. scripts/method_table.py copies them into data/methods.json, so that a
record can be read and labelled without importing torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: The benchmarks with published arguments, each with the optimizer that most methods use on it.
BENCHMARKS = {"cifar10-c": "adam", "cifar100-c": "adam", "imagenet-c": "sgd", "domainnet-126": "sgd"}

#: Arguments by benchmark.
Recipes = Mapping[str, Mapping[str, Any]]

#: Norm layers of a network without batch norm, for which some methods have settings of their own.
OtherNorm = Literal["layer", "group"]


def without_optimizer(**settings: Any) -> Recipes:
    """Build the recipes of a method that has no optimizer.

    Args:
        settings: Arguments of the method. A dict maps the benchmark's name to the value there; any other value is used
            on every benchmark.

    Returns:
        The arguments by benchmark.
    """
    return {name: {k: v[name] if isinstance(v, dict) else v for k, v in settings.items()} for name in BENCHMARKS}


def per_dataset(*, sgd_lr: float = 2.5e-4, **settings: Any) -> Recipes:
    """Build the recipes of a method: Adam with lr 1e-3 on CIFAR, SGD on ImageNet-C and DomainNet-126.

    Args:
        sgd_lr: Learning rate of SGD.
        settings: Other arguments of the method, as for `without_optimizer`.

    Returns:
        The arguments by benchmark.

    Example:
        >>> recipes = per_dataset(sgd_lr=0.01, tau={name: 0.1 for name in BENCHMARKS})
        >>> recipes["imagenet-c"]
        {'optimizer': 'sgd', 'lr': 0.01, 'tau': 0.1}
    """
    table: dict[str, Mapping[str, Any]] = {}
    for name, own in without_optimizer(**settings).items():
        optimizer = BENCHMARKS[name]
        table[name] = {"optimizer": optimizer, "lr": 1e-3 if optimizer == "adam" else sgd_lr, **own}
    return table


#: For methods whose hyperparameters do not depend on the benchmark.
NOTHING_SET: Recipes = {name: {} for name in BENCHMARKS}

#: The ``projection`` of RMT, SANTA and DMSE: none on DomainNet-126, where the features are already a 256-d bottleneck.
MLP_EXCEPT_DOMAINNET = {"cifar10-c": "mlp", "cifar100-c": "mlp", "imagenet-c": "mlp", "domainnet-126": None}


@dataclass(frozen=True)
class BatchRate:
    """A learning rate of SGD in proportion to the batch size.

    Args:
        lr: The learning rate in batches of `batch_size` images.
        batch_size: Images per batch.
        rises: Whether it also rises in larger batches.
    """

    lr: float
    batch_size: int
    rises: bool

    def arguments(self, batch_size: int) -> dict[str, Any]:
        """Return the arguments of a method for batches of this size.

        Args:
            batch_size: Images per batch.

        Example:
            >>> BatchRate(0.001, 64, rises=True).arguments(128)
            {'optimizer': 'sgd', 'lr': 0.002, 'momentum': 0.9, 'nesterov': False}
        """
        counted = batch_size if self.rises else min(batch_size, self.batch_size)
        return {"optimizer": "sgd", "lr": self.lr / self.batch_size * counted, "momentum": 0.9, "nesterov": False}


#: What SAR's and DeYO's scripts use for Tent, EATA, SAR and DeYO with a ViT-B/16 and a ResNet-50 with group norm.
WITHOUT_BATCH_NORM: Mapping[OtherNorm, BatchRate] = {
    "layer": BatchRate(1e-3, 64, rises=True),
    "group": BatchRate(2.5e-4, 32, rises=False),
}
