"""Load models by name.

A name is one of `ctta ls models`, a model of an installed library (``timm:NAME``, ``torchvision:NAME``), a folder
written by Hugging Face's save_pretrained (``hf:FOLDER``), or the user's own code (``package.module:name`` or
``file.py:name``). Nothing is downloaded and no file is unpickled.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ctta import nets
from ctta._system.digests import sha256_of
from ctta._system.imports import find_name, load_module, public_names, user_code
from ctta._system.targets import split_target
from ctta.errors import BadData, MissingData, MissingExtra, ModelError, NotWeights, ParameterError, UnknownModel
from ctta.nets.models import MODELS, Model
from ctta.registry import BUILT_IN, Registry

if TYPE_CHECKING:
    from torch import nn

    from ctta.classifier import Classifier

logger = logging.getLogger("ctta")

#: Models by name: those of the table, and those that installed packages offer as entry points of the group
#: ``ctta.models``. An entry point refers to a `Model`, a network, or a function that builds one.
NAMES: Registry[object] = Registry(UnknownModel, "ctta.models", lambda value, _: value)


def _table_entry(model: Model) -> Callable[[], object]:
    return lambda: model


for _model in MODELS.values():
    NAMES.add(_model.name, _table_entry(_model))


@dataclass(frozen=True)
class Loaded:
    """A model ready to be adapted, with the facts that go into records.

    Args:
        name: Its name in records, which never holds a path.
        classifier: The model with its head and normalisation, in eval mode.
        mean: The mean per channel, or None if the model normalises its own input.
        std: The standard deviation per channel.
        input_size: The side in pixels that images are resized to, or None if they are not resized.
        code: Identifies code outside ctta: the digest of the user's file, or a plug-in's version.
    """

    name: str
    classifier: Classifier
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    input_size: int | None = None
    code: str | None = None

    def facts(self) -> dict[str, object]:
        """Return the entry for the specification of a run."""
        facts = {"name": self.name, "digest": self.classifier.digest(), "mean": self.mean, "std": self.std}
        more = {"input_size": self.input_size, "code": self.code}
        # Leave out keys without a value: older records do not have them, and their addresses must stay the same.
        return facts | {key: value for key, value in more.items() if value is not None}


def check_name(name: str) -> None:
    """Raise UnknownModel if a name cannot refer to a model; imports nothing.

    Args:
        name: See the module's docstring.
    """
    if name.partition(":")[0] not in _LIBRARIES:
        NAMES.check(name)


def is_own(name: str) -> bool:
    """Return whether a name can only refer to the user's own code.

    Args:
        name: See the module's docstring.
    """
    return name.partition(":")[0] not in _LIBRARIES and NAMES.find(name) is None


def load_model(name: str, weights: Path | None = None, *, classes: int | None = None) -> Loaded:
    """Load a model by name.

    Args:
        name: See the module's docstring.
        weights: A weights file. Bundled models need none; without one, a library's model has random weights; the user's
            own model may load its weights itself.
        classes: Number of classes of a library's model with random weights. Default: the library's.

    Raises:
        UnknownModel: With the nearest known name.
        UserCodeError: If the user's own code does not exist or fails.
        MissingExtra: If the library is not installed.
        MissingData, BadData, NotWeights: If a file is missing or does not fit.
        ModelError: If the name refers to something that is not a network.
    """
    library, _, rest = name.partition(":")
    if library in _LIBRARIES:
        return _LIBRARIES[library](rest, weights, classes)
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
    with _same_random_weights():
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
        return copy.deepcopy(value)
    if callable(value):
        with user_code(f"Calling {what}"), _same_random_weights():
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
        fit(classifier.model, read_weights(weights), what=f"The weights in {weights.name}")
    mean, std = (None if v is None else tuple(v.flatten().tolist()) for v in (classifier.mean, classifier.std))
    return Loaded(name, classifier.eval(), mean, std, code=code)


def _timm(name: str, weights: Path | None, classes: int | None) -> Loaded:
    timm = _library("timm")
    if not timm.is_model(name):
        raise UnknownModel(f"timm:{name}", [f"timm:{known}" for known in timm.list_models()])

    def build(count: int | None) -> nn.Module:
        net: nn.Module = timm.create_model(name, pretrained=False, **({} if count is None else {"num_classes": count}))
        return net

    net = _fitted(f"timm:{name}", build, weights, classes)
    config = import_module("timm.data").resolve_model_data_config(net)
    return _sized(f"timm:{name}", net, config["mean"], config["std"], config["input_size"][-1])


def _torchvision(name: str, weights: Path | None, classes: int | None) -> Loaded:
    _library("torchvision")
    models = import_module("torchvision.models")
    known = models.list_models(module=models)
    if name not in known:
        raise UnknownModel(f"torchvision:{name}", [f"torchvision:{other}" for other in known])

    def build(count: int | None) -> nn.Module:
        net: nn.Module = models.get_model(name, weights=None, **({} if count is None else {"num_classes": count}))
        return net

    published = models.get_model_weights(name).DEFAULT.transforms()
    net = _fitted(f"torchvision:{name}", build, weights, classes)
    return _sized(f"torchvision:{name}", net, published.mean, published.std, published.crop_size[0])


def _hugging_face(folder: str, weights: Path | None, classes: int | None) -> Loaded:
    if weights is not None:
        raise ParameterError(f"hf:{folder} contains its weights. Leave out --weights.")
    path = Path(folder)
    settings = _preprocessing(path)
    transformers = _library("transformers")
    if not list(path.glob("*.safetensors")):
        raise MissingData(f"{path.absolute()} must hold its weights as *.safetensors; other formats are not read.")
    try:
        net, found = transformers.AutoModelForImageClassification.from_pretrained(
            path, local_files_only=True, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # a damaged folder can fail anywhere inside the library
        reason = str(error).strip().split("\n")[0]
        raise BadData(f"{path.name} is not an image classifier of transformers: {reason}") from error
    if missing := sorted(str(key) for key in (*found["missing_keys"], *found["mismatched_keys"])):
        raise NotWeights(
            f"The weights in {path.name} do not fit {type(net).__name__}: {len(missing)} missing or of another shape, "
            f"such as {missing[0]}."
        )
    return _sized(f"hf:{type(net).__name__}", net, *settings)


def _preprocessing(folder: Path) -> tuple[Any, Any, int | None]:
    """Read mean, std and image size from a folder's preprocessor_config.json."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        raise MissingData(
            f"hf:{folder} must be a folder with config.json, model.safetensors and preprocessor_config.json, as "
            f"save_pretrained writes them; {file.absolute()} is not there."
        )
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        normalise = config.get("do_normalize", True)
        mean, std = (config["image_mean"], config["image_std"]) if normalise else (None, None)
        size = config.get("crop_size" if config.get("do_center_crop") else "size")
        if isinstance(size, dict):
            size = next(size[key] for key in ("height", "shortest_edge") if key in size)
        scale = float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0
        side = None if size is None else int(size)
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration) as error:
        raise BadData(f"{file} is not the configuration of an image processor: {error!r}.") from error
    if abs(scale * 255 - 1) > 1e-6:
        raise BadData(f"{file} scales grey levels by {scale}; ctta's images are in [0, 1], which is a scale of 1/255.")
    return mean, std, side


_LIBRARIES: dict[str, Callable[[str, Path | None, int | None], Loaded]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "hf": _hugging_face,
}


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra(name, "models") from error
    except Exception as error:  # a package built for another version of torch can fail in many ways
        raise ModelError(f"{name} is installed but cannot be imported: {error}.") from error


def _fitted(
    name: str, build: Callable[[int | None], nn.Module], weights: Path | None, classes: int | None
) -> nn.Module:
    """Build a library's network with the weights from a file, and with as many classes as those have."""
    from ctta.classifier import Classifier  # noqa: PLC0415
    from ctta.nets.weights import fit, read_weights  # noqa: PLC0415

    with _same_random_weights():
        if weights is None:
            logger.warning("%s has random weights; load trained ones with --weights", name)
            return build(classes)
        tensors = read_weights(weights)
        head = tensors.get(f"{Classifier(build(None)).head_name}.weight")
        net = build(None if head is None else len(head))
    fit(net, tensors, what=f"The weights in {weights.name}")
    return net


def _sized(name: str, net: nn.Module, mean: Any, std: Any, size: int | None) -> Loaded:
    from ctta.classifier import Classifier  # noqa: PLC0415
    from ctta.nets.resized import Resized  # noqa: PLC0415

    means, stds = (None if values is None else tuple(float(v) for v in values) for values in (mean, std))
    classifier = Classifier(net if size is None else Resized(net, size), mean=means, std=stds).eval()
    return Loaded(name, classifier, means, stds, input_size=size)


@contextmanager
def _same_random_weights() -> Iterator[None]:
    """Initialise with the same random weights every time, because a run is identified by the digest of its weights."""
    import torch  # noqa: PLC0415

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
