"""The CIFAR-10 source models that ctta trains itself."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from ctta._system.files import write_atomically
from ctta.classifier import Classifier
from ctta.errors import ParameterError
from ctta.nets.cifar_resnet import CifarResNet
from ctta.nets.models import CIFAR10
from ctta.nets.train_cifar import CifarTraining
from ctta.version import __version__

MEAN, STD = CIFAR10
CLASSES = 10


@dataclass(frozen=True)
class SourceModel:
    """A CIFAR-10 ResNet with 1 x 1 convolutions in its shortcuts.

    Args:
        depth: Number of layers: 20, 32, 44, 56, ...
    """

    depth: int

    @classmethod
    def named(cls, net: str) -> SourceModel:
        """Return the model with a name such as `resnet20`.

        Args:
            net: "resnet" and the depth.
        """
        found = re.fullmatch(r"resnet(\d+)", net)
        if not found:
            raise ParameterError(f"The 'net' must be resnet20, resnet32, resnet44, resnet56, ... Got {net!r} instead.")
        return cls(int(found[1]))

    def build(self) -> Classifier:
        """Build the network with random weights, wrapped in the Classifier that normalises its input."""
        return Classifier(CifarResNet(self.depth, CLASSES, shortcut="conv"), head="fc", mean=MEAN, std=STD)

    def save(self, model: nn.Module, out: Path, how: CifarTraining, *, accuracy: float, command: str) -> None:
        """Write the weights as safetensors, with metadata that document the training.

        Args:
            model: The trained Classifier.
            out: The file to write.
            how: The training settings.
            accuracy: Accuracy on the test images, in percent.
            command: The command line that started the training.
        """
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
