"""The networks the paper uses and where their published weights are.

`load("cifar10_resnet20", path)` gives the network with the file's weights, and `classifier(name, path)` the same inside
the `ctta.Classifier` that normalises its images. Models that come with the package need no path.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ctta.digests import sha256_of
from ctta.errors import MissingData, UnknownModel
from ctta.nets.models import MODELS, Model

if TYPE_CHECKING:
    from torch import nn

    from ctta.classifier import Classifier

logger = logging.getLogger("ctta")

#: The folder of the weights that come with the package.
SHIPPED = Path(__file__).parents[1] / "data"

__all__ = ["MODELS", "Model", "UnknownModel", "build", "classifier", "load"]


def build(name: str) -> nn.Module:
    """Build the named network with random weights."""
    return _model(name).build()


def classifier(name: str, path: str | os.PathLike[str] | None = None) -> Classifier:
    """The named network with its weights, its head and its normalisation, ready for a method."""
    return wrap(_model(name), path)


def wrap(model: Model, path: str | os.PathLike[str] | None = None) -> Classifier:
    """The network of an entry of the table, or of a plug-in, in a Classifier; see `load` for ``path``."""
    from ctta.classifier import Classifier  # noqa: PLC0415 - listing the models takes no torch

    return Classifier(_load(model, path), head=model.head, mean=model.mean, std=model.std).eval()


def load(name: str, path: str | os.PathLike[str] | None = None) -> nn.Module:
    """Build the named network with the weights of a file, or of a folder that holds it, in eval mode.

    Without a path the file is looked for among those that come with the package.
    """
    return _load(_model(name), path)


def _load(model: Model, path: str | os.PathLike[str] | None) -> nn.Module:
    from ctta.nets.weights import fit, read_weights  # noqa: PLC0415 - listing the models takes no torch

    path = SHIPPED if path is None else Path(path)
    path = path / model.file if path.is_dir() else path
    if not path.exists():
        raise MissingData(
            f"The weights of {model.name} are not at {path.absolute()}. They are published as {model.file} "
            f"({model.source}): put that file there, or give the path of your copy."
        )
    if model.sha256 is not None and (found := sha256_of(path)) != model.sha256:
        logger.warning("%s is not the published file of %s: sha256 %s, not %s", path, model.name, found, model.sha256)
    net = model.build()
    fit(net, read_weights(path, drop=model.drop), what=f"The weights in {path.name}")
    return net.eval()


def _model(name: str) -> Model:
    if name not in MODELS:
        raise UnknownModel(name, MODELS)
    return MODELS[name]
