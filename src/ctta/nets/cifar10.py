"""The CIFAR-10 source models that ctta trains itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from ctta import nets
from ctta.classifier import Classifier
from ctta.errors import ParameterError
from ctta.nets.cifar_resnet import CifarResNet
from ctta.nets.models import CIFAR10
from ctta.nets.train_cifar import CifarTraining
from ctta.nets.vit import CifarViT
from ctta.nets.weights import fit, write_weights
from ctta.version import __version__

MEAN, STD = CIFAR10
CLASSES = 10

#: The bundled ResNet with batch norm, which the group-norm network of the same depth starts from.
BUNDLED = "cifar10_resnet20_ctta"
BUNDLED_DEPTH = 20
#: Fewer passes than from random weights: the convolutions are trained already, and adjust to other norm layers.
FROM_BUNDLED = CifarTraining(passes=5, small_passes=4, lr=0.05)
TRANSFORMER = CifarTraining(
    passes=15,
    small_passes=12,
    batch_size=64,
    optimizer="adamw",
    lr=1e-3,
    warm_up=0.1,
    weight_decay=0.05,
    label_smoothing=0.1,
)


@dataclass(frozen=True)
class SourceModel:
    """A network to train on CIFAR-10, and how.

    Args:
        net: Its constructor call, as written to the file's metadata.
        network: Builds the network with random weights.
        head: Name of its last linear layer.
        how: The training settings that its bundled weights were made with.
        start: The bundled model whose parameters it starts from, wherever it has one of the same name.
    """

    net: str
    network: Callable[[], nn.Module]
    head: str
    how: CifarTraining = field(default_factory=CifarTraining)
    start: str | None = None

    @classmethod
    def named(cls, net: str) -> SourceModel:
        """Return the model with a name such as `resnet20`, `resnet20-gn` or `vit-tiny`.

        Args:
            net: "resnet" and the depth, with "-gn" for group norm instead of batch norm; or "vit-tiny".
        """
        if net == "vit-tiny":
            return cls(f"CifarViT(4, {CLASSES})", partial(CifarViT, 4, CLASSES), "head", TRANSFORMER)
        found = re.fullmatch(r"resnet(\d+)(-gn)?", net)
        if not found:
            raise ParameterError(
                f"The 'net' must be resnet20, resnet32, ..., resnet20-gn, resnet32-gn, ... or vit-tiny. "
                f"Got {net!r} instead."
            )
        depth, options = int(found[1]), {"shortcut": "conv"} | ({"norm": "group"} if found[2] else {})
        written = "".join(f", {name}={value!r}" for name, value in options.items())
        build = partial(CifarResNet, depth, CLASSES, **options)  # type: ignore[arg-type]
        from_bundled = bool(found[2]) and depth == BUNDLED_DEPTH
        return cls(
            f"CifarResNet({depth}, {CLASSES}{written})",
            build,
            "fc",
            FROM_BUNDLED if from_bundled else CifarTraining(),
            start=BUNDLED if from_bundled else None,
        )

    def build(self) -> Classifier:
        """Build the network with its first weights, wrapped in the Classifier that normalises its input."""
        net = self.network()
        if self.start is not None:
            weights = nets.load(self.start).state_dict()
            fit(net, {name: weights[name] for name in net.state_dict()}, what=f"The weights of {self.start}")
        return Classifier(net, head=self.head, mean=MEAN, std=STD)

    def training(
        self,
        *,
        passes: int | None = None,
        small_passes: int | None = None,
        lr: float | None = None,
        label_smoothing: float | None = None,
        seed: int = 0,
    ) -> CifarTraining:
        """Return the training settings of this model with some of them changed.

        Args:
            passes: Passes over the training images.
            small_passes: How many of these use small crops. The default is 60 % of `passes` if that is given.
            lr: The highest learning rate.
            label_smoothing: Label smoothing.
            seed: Seed of the weights, the order of the images and the crops.
        """
        how = replace(self.how, seed=seed)
        if passes is not None:
            how = replace(how, passes=passes, small_passes=round(0.6 * passes))
        if small_passes is not None:
            how = replace(how, small_passes=small_passes)
        if lr is not None:
            how = replace(how, lr=lr)
        return how if label_smoothing is None else replace(how, label_smoothing=label_smoothing)

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
        facts = {
            "net": self.net,
            "start": self.start or "random weights",
            "mean": MEAN,
            "std": STD,
            "accuracy": round(accuracy, 2),
            "training": asdict(how),
            "command": command,
            "versions": f"ctta {__version__}, torch {torch.__version__}",
        }
        write_weights(out, model.model, facts)
