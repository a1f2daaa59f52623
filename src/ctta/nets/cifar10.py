"""The CIFAR-10 source models of the project's own training."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save
from torch import Tensor, nn

from ctta.classifier import Classifier
from ctta.errors import ParameterError
from ctta.files import write_atomically
from ctta.nets.cifar_resnet import CifarResNet
from ctta.nets.train_cifar import CifarTraining, Progress, train_cifar
from ctta.version import __version__

if TYPE_CHECKING:
    import os

#: Of the 50,000 training images, per channel.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CLASSES = 10


@dataclass(frozen=True)
class SourceModel:
    """A CIFAR-10 ResNet with 1 x 1 convolutions in its shortcuts."""

    depth: int

    @classmethod
    def named(cls, net: str) -> SourceModel:
        """`resnet20` and the like."""
        found = re.fullmatch(r"resnet(\d+)", net)
        if not found:
            raise ParameterError(f"The 'net' must be resnet20, resnet32, resnet44, resnet56, ... Got {net!r} instead.")
        return cls(int(found[1]))

    def build(self) -> Classifier:
        """The network with random weights, and its normalisation."""
        return Classifier(CifarResNet(self.depth, CLASSES, shortcut="conv"), head="fc", mean=MEAN, std=STD)

    def train(
        self,
        x: Tensor,
        y: Tensor,
        how: CifarTraining,
        *,
        resume: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> nn.Module:
        """Train on uint8 images (N, 3, 32, 32)."""
        return train_cifar(self.build, x, y, how, resume=resume, progress=progress)

    @torch.no_grad()
    def accuracy(self, model: nn.Module, x: Tensor, y: Tensor) -> float:
        """Accuracy in percent on uint8 images."""
        right = 0
        for i in range(0, len(x), 500):
            right += int((model(x[i : i + 500].float() / 255).argmax(1) == y[i : i + 500]).sum())
        return 100 * right / len(x)

    def save(self, model: nn.Module, out: Path, how: CifarTraining, *, accuracy: float, command: str) -> None:
        """Write the network's weights as safetensors; its metadata say how they came about."""
        assert isinstance(model, Classifier)
        weights = {name: value.contiguous() for name, value in model.model.state_dict().items()}
        metadata = {
            "net": f"CifarResNet({self.depth}, {CLASSES}, shortcut='conv')",
            "mean": json.dumps(MEAN),
            "std": json.dumps(STD),
            "accuracy": f"{accuracy:.2f}",
            "training": json.dumps(asdict(how)),
            "passes": str(how.passes),
            "seed": str(how.seed),
            "command": command,
            "versions": f"ctta {__version__}, torch {torch.__version__}",
        }
        write_atomically(out, save(weights, metadata))
