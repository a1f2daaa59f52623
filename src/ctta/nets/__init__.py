"""The networks the paper uses and where their published weights are.

`load("cifar10_resnet20", path)` gives the network with the file's weights; its images are normalised with
`MODELS["cifar10_resnet20"].mean` and `.std`, by `ctta.Classifier` and nowhere else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ctta.errors import MissingData, UnknownName
from ctta.nets.models import MODELS, Model

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "Model", "UnknownModel", "build", "load"]


class UnknownModel(UnknownName):
    """No network has this name."""

    kind = "model"
    see = " See: ctta ls models"


def build(name: str) -> nn.Module:
    """Build the named network with random weights."""
    return _model(name).build()


def load(name: str, path: str | os.PathLike[str]) -> nn.Module:
    """Build the named network with the weights of a file, or of a folder that holds it, in eval mode."""
    from ctta.nets.weights import fit, read_weights  # noqa: PLC0415 - listing the models takes no torch

    model, path = _model(name), Path(path)
    path = path / model.file if path.is_dir() else path
    if not path.exists():
        raise MissingData(
            f"The weights of {name} are not at {path.absolute()}. They are published as {model.file} "
            f"({model.source}): put that file there, or give the path of your copy."
        )
    net = model.build()
    fit(net, read_weights(path, drop=model.drop), what=f"The weights in {path.name}")
    return net.eval()


def _model(name: str) -> Model:
    if name not in MODELS:
        raise UnknownModel(name, MODELS)
    return MODELS[name]
