"""Class prototypes: estimated from the classifier's own weights, or measured on source data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ctta.classifier import Classifier
from ctta.errors import DataError, NonFiniteImages, ParameterError
from ctta.functional import class_means
from ctta.images import broken_images
from ctta.norms import use_batch_statistics


def prototypes_from_classifier(model: Classifier) -> Tensor:
    """p_0 of DMSE, RMT* and SANTA*: the rows of the head's effective weight W_h, (C, d), a detached copy.

    Paper silent: raw rows, neither normalised nor shifted by the bias.
    """
    return model.weight.clone()


@torch.no_grad()
def prototypes_from_source(
    model: nn.Module, loader: Iterable[Any], *, most: int = 100_000, missing: str = "raise"
) -> Tensor:
    """Class means of source features, (C, d), for DMSE^s, RMT and SANTA.

    ``loader`` gives (images, labels) batches; reading stops after ``most`` images. Features are taken with batch
    statistics, as at test time. A class without an image raises, or with ``missing="classifier"`` takes its row of
    the head's weight.
    """
    if missing not in ("raise", "classifier"):
        raise ParameterError(f"The 'missing' parameter must be 'raise' or 'classifier'. Got {missing!r} instead.")
    source = copy.deepcopy(model if isinstance(model, Classifier) else Classifier(model)).eval()
    use_batch_statistics(source)
    weight = source.weight
    sums, counts = torch.zeros_like(weight), torch.zeros(len(weight), dtype=torch.long, device=weight.device)
    for batch in loader:
        x, y = images_and_labels(batch, len(weight))
        _, g = source.with_features(x.to(weight))
        means, seen = class_means(g, y.to(weight.device), len(weight))
        sums += means * seen.unsqueeze(1)
        counts += seen
        if int(counts.sum()) > most:
            break
    empty = counts == 0
    if empty.any() and missing == "raise":
        classes = empty.nonzero().flatten().tolist()
        raise DataError(
            f"Source prototypes need an image of every class; {len(classes)} of {len(weight)} have none "
            f"(first: {classes[:5]}). Give a loader that covers them, or missing='classifier'."
        )
    return torch.where(empty.unsqueeze(1), weight, sums / counts.clamp(min=1).unsqueeze(1))


def initial_prototypes(given: Tensor | None, model: Classifier) -> Tensor:
    """p_0: the classifier's rows, or a copy of the prototypes given by the user once their shape fits."""
    if given is None:
        return prototypes_from_classifier(model)
    weight = model.weight
    if given.shape != weight.shape or not given.isfinite().all():
        raise ParameterError(
            f"Prototypes must be finite and of shape (classes, features) = {tuple(weight.shape)}. "
            f"Got {tuple(given.shape)} instead. Make them with prototypes_from_source(model, loader)."
        )
    return given.detach().clone().to(weight)


def images_and_labels(batch: Any, classes: int) -> tuple[Tensor, Tensor]:
    """Images and labels of a batch that is a pair, a mapping or an object with x and y, once both are sound."""
    x = source_images(batch)
    y = batch["y"] if isinstance(batch, Mapping) else batch.y if hasattr(batch, "y") else batch[1]
    if not isinstance(y, Tensor) or y.shape != (len(x),) or y.is_floating_point():
        raise DataError(f"{len(x)} source images need {len(x)} integer labels; got {getattr(y, 'shape', y)!r}.")
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise DataError(f"Source labels must be in 0..{classes - 1}; got {int(y.min())}..{int(y.max())}.")
    return x, y


def source_images(batch: Any) -> Tensor:
    """The images of a batch, which may be images alone, once they are what a model takes."""
    x = batch
    if isinstance(batch, Mapping):
        x = batch["x"]
    elif not isinstance(batch, Tensor):
        x = batch.x if hasattr(batch, "x") else batch[0]
    if broken_images(x) is not None:
        raise NonFiniteImages("Source images must be finite; some contain NaN or Inf.")
    images: Tensor = x
    return images
