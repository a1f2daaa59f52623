"""The networks and images to measure on, and methods configured so that a step has its highest cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.classifier import Classifier, Precision
from ctta.nets import build, classifier
from ctta.nets.cifar_resnet import CifarResNet
from ctta.registry import methods

#: Settings under which every image passes every filter, and CoTTA and PETAL always average their views.
FULL_COST: dict[str, dict[str, Any]] = {
    "asr": {"e_margin": 1.0, "d_margin": 1.0},
    "cotta": {"p_th": 2.0},
    "deyo": {"tau_ent": 1.0, "tau_plpd": -1.0},
    "eata": {"e_margin": 1.0, "d_margin": 1.0},
    "obao": {"e_margin": 1.0},
    "petal": {"p_th": 2.0},
    "rdumb": {"e_margin": 1.0, "d_margin": 1.0},
    "sar": {"e_margin": 1.0, "reset_constant": 0.0},
}

#: Other forms of a method, by the label of their runs: cheaper, more expensive, or with a paper of its own.
FORMS: dict[str, dict[str, Any]] = {
    "asr base=roid": {"base": "roid"},
    "eata loss=come": {"loss": "come"},
    "lame affinity=knn": {"affinity": "knn"},
    "sar loss=come": {"loss": "come"},
    "tent loss=come": {"loss": "come"},
    "trio learns_from=norms": {"learns_from": "norms"},
    "trio learns_from=norms view=None": {"learns_from": "norms", "view": None},
    "trio teacher_views=4": {"teacher_views": 4},
    "trio view=None": {"view": None},
}


@dataclass(frozen=True)
class Subject:
    """A network to measure on.

    Args:
        title: Name in reports.
        model: Builds the network.
        batch: Images per batch.
        side: Side of the images, in pixels.
        recipe: The dataset whose recipes are used.
        methods: The methods to measure, and forms of them by the names in `FORMS`.
        views: Number of views for methods that average over views; None means as in their recipes.
    """

    title: str
    model: Callable[[], Classifier]
    batch: int
    side: int
    recipe: str
    methods: tuple[str, ...]
    views: int | None = None

    def images(self) -> Tensor:
        """Return a batch of uniform noise."""
        return noise(self.batch, self.side)

    def adapter(self, name: str, precision: Precision = "fp32", **more: Any) -> Adapter:
        """Build a method, or a form of one, around a new copy of the network, at its highest cost."""
        base = name.partition(" ")[0]
        method = methods()[base]
        own = FULL_COST.get(base, {}) | FORMS.get(name, {})
        options = method.recipe(self.recipe) | own | {"precision": precision} | more
        if self.views is not None and "views" in method.arguments():
            options["views"] = self.views
        return method(self.model(), **options)


def noise(batch: int, side: int) -> Tensor:
    """Return images (N, 3, side, side) of uniform noise."""
    return torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))


def cifar_net(depth: int = 20, classes: int = 10, width: int = 16) -> Classifier:
    """Build a CIFAR ResNet with random weights."""
    torch.manual_seed(0)
    return Classifier(CifarResNet(depth, classes, width=width)).eval()


def _resnet50() -> Classifier:
    torch.manual_seed(0)
    return Classifier(build("imagenet_resnet50"), head="fc").eval()


def _large_head() -> Classifier:
    """Build a tiny network with a large head, to measure what a method computes on features and logits."""
    torch.manual_seed(0)
    embed = (nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, 2048), nn.BatchNorm1d(2048), nn.ReLU())
    return Classifier(nn.Sequential(*embed, nn.Linear(2048, 1000))).eval()


EVERY, SOME = (*methods(), *FORMS), ("bn", "tent", "santa", "rmt", "dmse")
RESNET20 = Subject(
    "ResNet-20, 32 px, batch 200", partial(classifier, "cifar10_resnet20_ctta"), 200, 32, "cifar10-c", EVERY
)
RESNET50 = Subject("ResNet-50, 224 px, batch 16, 1000 classes", _resnet50, 16, 224, "imagenet-c", SOME)
HEAD1000 = Subject("a head of 1000 classes on 2048 features, batch 64", _large_head, 64, 32, "imagenet-c", SOME)
TINY = Subject("tiny", partial(cifar_net, 8, width=4), 8, 16, "cifar10-c", tuple(methods()), views=2)
