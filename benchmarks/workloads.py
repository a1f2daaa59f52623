"""The networks, their images, and each method built so that a step costs the most it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.options import Options
from ctta import Adapter, Classifier
from ctta.classifier import Precision
from ctta.nets import build, classifier
from ctta.nets.models import IMAGENET
from ctta.registry import methods

#: Every sample passes every filter, and CoTTA always averages its views.
FULL_COST: dict[str, dict[str, Any]] = {
    "cotta": {"p_th": 2.0},
    "deyo": {"tau_ent": 1.0, "tau_plpd": -1.0},
    "eata": {"e_margin": 1.0, "d_margin": 1.0},
    "rdumb": {"e_margin": 1.0, "d_margin": 1.0},
    "sar": {"e_margin": 1.0, "reset_constant": 0.0},
}


@dataclass(frozen=True)
class Workload:
    """A network as a user has it, and a batch."""

    name: str
    model: Callable[[], Classifier]
    shape: tuple[int, int, int, int]

    def batch(self) -> Tensor:
        return torch.rand(self.shape, generator=torch.Generator().manual_seed(0))

    def adapter(self, method: str, precision: Precision = "fp32") -> Adapter:
        return methods()[method](self.model(), precision=precision, **FULL_COST.get(method, {}))


def workloads(options: Options) -> list[Workload]:
    every = _quick() if options.quick else _full()
    return [workload for workload in every if workload.name in (options.workloads or [w.name for w in every])]


def method_names(options: Options) -> list[str]:
    return [name for name in methods() if name in (options.methods or methods())]


def forward(model: nn.Module, x: Tensor) -> Callable[[], object]:
    """The plain forward pass: eval mode, no gradient, the layout the model has."""

    @torch.no_grad()
    def work() -> object:
        return model(x)

    return work


def _full() -> list[Workload]:
    return [
        Workload("resnet20", lambda: classifier("cifar10_resnet20_ctta"), (200, 3, 32, 32)),
        Workload("resnet50", _resnet50, (16, 3, 224, 224)),
        Workload("head1000", lambda: _large_head(2048, 1000), (64, 3, 32, 32)),
    ]


def _quick() -> list[Workload]:
    return [
        Workload("resnet20", lambda: classifier("digits_resnet8"), (4, 3, 16, 16)),
        Workload("head1000", lambda: _large_head(32, 20), (4, 3, 16, 16)),
    ]


def _resnet50() -> Classifier:
    torch.manual_seed(0)
    mean, std = IMAGENET
    return Classifier(build("imagenet_resnet50"), head="fc", mean=mean, std=std).eval()


def _large_head(features: int, classes: int) -> Classifier:
    """Next to no network before a large head: what a method computes on features and logits."""
    torch.manual_seed(0)
    layers = (
        nn.AdaptiveAvgPool2d(8),
        nn.Flatten(),
        nn.Linear(3 * 8 * 8, features),
        nn.BatchNorm1d(features),
        nn.ReLU(),
        nn.Linear(features, classes),
    )
    return Classifier(nn.Sequential(*layers), head="5").eval()
