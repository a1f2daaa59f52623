"""Load models by name.

A name is one of `ctta ls models`, a model of an installed library (``timm:NAME``, ``torchvision:NAME``), a folder
written by Hugging Face's save_pretrained (``hf:FOLDER``), or the user's own code (``package.module:name`` or
``file.py:name``). Nothing is downloaded and no file is unpickled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ctta import nets
from ctta._system.digests import sha256_of
from ctta._system.imports import find_name, first_on_path, load_module, public_names, user_code
from ctta._system.targets import split_target
from ctta.errors import ModelError, UnknownModel
from ctta.nets.libraries import LIBRARIES
from ctta.nets.loaded import Loaded, same_random_weights
from ctta.nets.models import MODELS, Model
from ctta.registry import BUILT_IN, Registry

if TYPE_CHECKING:
    from torch import nn

    from ctta.classifier import Classifier

__all__ = ["NAMES", "Loaded", "check_name", "from_table", "is_own", "load_model", "own_model"]

#: Models by name: those of the table, and those that installed packages offer as entry points of the group
#: ``ctta.models``. An entry point refers to a `Model`, a network, or a function that builds one.
NAMES: Registry[object] = Registry(UnknownModel, "ctta.models", lambda value, _: value)


def _table_entry(model: Model) -> Callable[[], object]:
    return lambda: model


for _model in MODELS.values():
    NAMES.add(_model.name, _table_entry(_model))


def check_name(name: str) -> None:
    """Raise UnknownModel if a name cannot refer to a model; imports nothing.

    Args:
        name: See the module's docstring.
    """
    if name.partition(":")[0] not in LIBRARIES:
        NAMES.check(name)


def is_own(name: str) -> bool:
    """Return whether a name can only refer to the user's own code.

    Args:
        name: See the module's docstring.
    """
    return name.partition(":")[0] not in LIBRARIES and NAMES.find(name) is None


def load_model(name: str, weights: Path | None = None, *, classes: int | None = None) -> Loaded:
    """Load a model by name.

    Args:
        name: See the module's docstring.
        weights: A weights file. Bundled models need none; without one, a library's model has random weights; the user's
            own model may load its weights itself.
        classes: Number of classes of a library's model with random weights. Default: the library's.

    Raises:
        UnknownModel: If the name is unknown. The message suggests the nearest one.
        UserCodeError: If the user's own code does not exist or fails.
        MissingExtra: If the library is not installed.
        MissingData, BadData, NotWeights: If a file is missing or does not fit.
        ModelError: If the name refers to something that is not a network.
    """
    library, _, rest = name.partition(":")
    if library in LIBRARIES:
        return LIBRARIES[library](rest, weights, classes)
    NAMES.check(name)
    entry = NAMES.find(name)
    if entry is None:
        return _own(name, weights)
    value = entry.load()
    if isinstance(value, Model):
        return from_table(value, nets.wrap(value, weights), code=None if entry.origin == BUILT_IN else entry.origin)
    what = f"the model {name!r} of {entry.origin}"
    return _wrapped(entry.name, _network(value, what), weights, code=entry.origin)


def from_table(model: Model, classifier: Classifier, *, code: str | None = None) -> Loaded:
    """Describe a classifier built from a model of the table.

    Args:
        model: The model.
        classifier: The classifier built from it.
        code: The version of the plug-in that defines the model, if any.
    """
    return Loaded(model.name, classifier, model.mean, model.std, code=code)


def own_model(target: str) -> nn.Module:
    """Load the model that ``package.module:name`` or ``file.py:name`` refers to.

    Args:
        target: The name of a model, or of a function or class that returns one. The name may be left out if the module
            has only one model or, without a model, only one function.

    Raises:
        UserCodeError: If the code does not exist or fails.
        ModelError: If the result is not a torch.nn.Module.
    """
    return _network(_own_value(target)[1], target)


def _own_value(target: str) -> tuple[str, object]:
    """Find the object that a target refers to, and its name in the module."""
    origin, name = split_target(target)
    # A network that is built on import must have the same weights in every process.
    with same_random_weights():
        module = load_module(origin)
    name = name or _only_model(module, origin)
    return name, find_name(module, name, origin)


def _only_model(module: ModuleType, origin: str) -> str:
    """Return the name of a module's only model: an nn.Module, or else a function defined there."""
    from torch import nn  # noqa: PLC0415 - names can be checked without torch

    own = {name: find_name(module, name, origin) for name in public_names(module)}
    models = [name for name, value in own.items() if isinstance(value, nn.Module)]
    makers = [name for name, value in own.items() if isfunction(value) and value.__module__ == module.__name__]
    for names in (models, makers):
        if len(names) == 1:
            return names[0]
    raise ModelError(
        f"Which model of {origin}? Name it as {origin}:name. It has: {', '.join(models + makers) or 'none'}."
    )


def _own(target: str, weights: Path | None) -> Loaded:
    name, value = _own_value(target)
    file = load_module(split_target(target)[0]).__file__
    return _wrapped(name, _network(value, target), weights, code=None if file is None else sha256_of(Path(file)))


def _network(value: object, what: str) -> nn.Module:
    """Return a copy of a network, or the network that a function or class builds."""
    from torch import nn  # noqa: PLC0415

    if isinstance(value, nn.Module):
        # A run may move the model or load weights into it; the user's object must not change.
        with user_code(f"Copying {what}"):
            value = copy.deepcopy(value)
    elif callable(value):
        origin = split_target(what)[0] if ":" in what else ""
        # The function may import the neighbours of its file only when it is called.
        here = first_on_path(Path(origin).parent.absolute()) if origin.endswith(".py") else nullcontext()
        with user_code(f"Calling {what}"), same_random_weights(), here:
            value = value()
    if not isinstance(value, nn.Module):
        raise ModelError(f"{what} must be, or return, a torch.nn.Module; got {type(value).__name__}.")
    return value


def _wrapped(name: str, net: nn.Module, weights: Path | None, code: str | None) -> Loaded:
    """Wrap the user's own network in a Classifier, unless it is one already."""
    from ctta.classifier import Classifier  # noqa: PLC0415
    from ctta.nets.weights import fit, read_weights  # noqa: PLC0415

    classifier = net if isinstance(net, Classifier) else Classifier(net)
    if weights is not None:
        tensors = read_weights(weights, own=classifier.model.state_dict())
        fit(classifier.model, tensors, what=f"The weights in {weights.name}")
    mean, std = (None if v is None else tuple(v.flatten().tolist()) for v in (classifier.mean, classifier.std))
    return Loaded(name, classifier.eval(), mean, std, code=code)
