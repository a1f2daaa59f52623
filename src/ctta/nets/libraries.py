"""Models of other libraries: timm, torchvision and Hugging Face transformers. Nothing is downloaded or unpickled."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctta.errors import BadData, MissingData, MissingExtra, ModelError, NotWeights, ParameterError, UnknownModel
from ctta.nets.loaded import Loaded, same_random_weights

if TYPE_CHECKING:
    from torch import nn

logger = logging.getLogger("ctta")


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

    with same_random_weights():
        if weights is None:
            logger.warning("%s has random weights; load trained ones with --weights", name)
            return build(classes)
        usual = build(None)
        tensors = read_weights(weights, own=usual.state_dict())
        head = tensors.get(f"{Classifier(usual).head_name}.weight")
        net = build(None if head is None else len(head))
    fit(net, tensors, what=f"The weights in {weights.name}")
    return net


def _sized(name: str, net: nn.Module, mean: Any, std: Any, size: int | None) -> Loaded:
    from ctta.classifier import Classifier  # noqa: PLC0415
    from ctta.nets.resized import Resized  # noqa: PLC0415

    means, stds = (None if values is None else tuple(float(v) for v in values) for values in (mean, std))
    classifier = Classifier(net if size is None else Resized(net, size), mean=means, std=stds).eval()
    return Loaded(name, classifier, means, stds, input_size=size)


#: Loaders by the prefix of a name. They take the rest of the name, a weights file, and the number of classes.
LIBRARIES: dict[str, Callable[[str, Path | None, int | None], Loaded]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "hf": _hugging_face,
}
