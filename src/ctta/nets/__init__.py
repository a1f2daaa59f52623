"""The paper's networks, and loaders for their published weights.

`load("cifar10_resnet20", path)` returns the network with the weights from a file; `classifier(name, path)` returns it
wrapped in a `ctta.Classifier`, which normalises the images. Bundled models need no path.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ctta._system.digests import sha256_of
from ctta.errors import MissingData, UnknownModel
from ctta.nets.models import MODELS, Model

if TYPE_CHECKING:
    from torch import nn

    from ctta.classifier import Classifier

logger = logging.getLogger("ctta")

#: Folder of the bundled weights.
SHIPPED = Path(__file__).parents[1] / "data"

__all__ = ["MODELS", "Model", "UnknownModel", "build", "classifier", "load"]


def build(name: str) -> nn.Module:
    """Build a network with random weights.

    Args:
        name: One of `MODELS`.
    """
    return _model(name).build()


def classifier(name: str, path: str | os.PathLike[str] | None = None) -> Classifier:
    """Load a network with its weights, head and normalisation, ready to be adapted.

    Args:
        name: One of `MODELS`.
        path: The weights file, or the folder that holds it. Bundled models need none.

    Raises:
        UnknownModel: If there is no such model.
        MissingData: If the file does not exist.
        NotWeights: If the file holds no weights, or weights of another network.

    Example:
        >>> import ctta.nets
        >>> model = ctta.nets.classifier("cifar10_resnet20_ctta")
    """
    return wrap(_model(name), path)


def wrap(model: Model, path: str | os.PathLike[str] | None = None) -> Classifier:
    """Load a model of the table, or of a plug-in, into a Classifier.

    Args:
        model: The model.
        path: The weights file, or the folder that holds it; by default the bundled file.
    """
    from ctta.classifier import Classifier  # noqa: PLC0415 - listing the models must not import torch

    return Classifier(_load(model, path), head=model.head, mean=model.mean, std=model.std).eval()


def load(name: str, path: str | os.PathLike[str] | None = None) -> nn.Module:
    """Load a network with its weights, in eval mode, without normalisation.

    Args:
        name: One of `MODELS`.
        path: The weights file, or the folder that holds it. Bundled models need none.

    Raises:
        UnknownModel: If there is no such model.
        MissingData: If the file does not exist.
        NotWeights: If the file holds no weights, or weights of another network.
    """
    return _load(_model(name), path)


def _load(model: Model, path: str | os.PathLike[str] | None) -> nn.Module:
    from ctta.nets.weights import fit, read_weights  # noqa: PLC0415 - listing the models must not import torch

    path = SHIPPED if path is None else Path(path)
    path = path / model.file if path.is_dir() else path
    if not path.exists():
        raise MissingData(
            f"The weights of {model.name} are not at {path.absolute()}. They are published as {model.file} "
            f"({model.source}): put that file there, or give the path of your copy (on the command line "
            "with --weights)."
        )
    if model.sha256 is not None and (found := sha256_of(path)) != model.sha256:
        logger.warning("%s is not the published file of %s: sha256 %s, not %s", path, model.name, found, model.sha256)
    net = model.build()
    fit(net, read_weights(path, drop=model.drop, own=net.state_dict()), what=f"The weights in {path.name}")
    return net.eval()


def _model(name: str) -> Model:
    if name not in MODELS:
        raise UnknownModel(name, MODELS)
    return MODELS[name]
