"""The networks and images that are measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ctta.classifier import Classifier
from ctta.nets import build, classifier
from ctta.nets.cifar_resnet import CifarResNet


@dataclass(frozen=True)
class Subject:
    """A network, the size of its batch, and the benchmark whose recipes suit it."""

    title: str
    model: Callable[[], Classifier]
    batch: int
    side: int
    recipe: str

    def images(self) -> Tensor:
        """A batch of uniform noise, of which every method finds a part worth learning from."""
        return noise(self.batch, self.side)


def noise(batch: int, side: int) -> Tensor:
    """Images (N, 3, side, side) of uniform noise."""
    return torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))


def cifar_net(depth: int = 20, classes: int = 10, width: int = 16) -> Classifier:
    """A CIFAR ResNet with random weights."""
    torch.manual_seed(0)
    return Classifier(CifarResNet(depth, classes, width=width)).eval()


def _resnet50() -> Classifier:
    torch.manual_seed(0)
    return Classifier(build("imagenet_resnet50"), head="fc").eval()


RESNET20 = Subject("ResNet-20, 32 px, batch 200", partial(classifier, "cifar10_resnet20_ctta"), 200, 32, "cifar10-c")
RESNET50 = Subject("ResNet-50, 224 px, batch 16, 1000 classes", _resnet50, 16, 224, "imagenet-c")
TINY = Subject("tiny", partial(cifar_net, 8, width=4), 8, 16, "cifar10-c")
