"""Class prototypes: from the weights of the classifier, or from source data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ctta._checks.images import check_images
from ctta.classifier import Classifier
from ctta.errors import DataError, NonFiniteImages, ParameterError
from ctta.functional import class_means
from ctta.norms import use_batch_statistics


def prototypes_from_classifier(model: Classifier) -> Tensor:
    """Return the prototypes p_0 of DMSE, RMT* and SANTA*: a copy of the rows of the head's weight W_h, (C, d).

    Paper silent: the raw rows are used, without normalisation or bias.

    Args:
        model: The classifier.
    """
    return model.weight.clone()


@torch.no_grad()
def prototypes_from_source(
    model: nn.Module, loader: Iterable[Any], *, most: int = 100_000, missing: str = "raise"
) -> Tensor:
    """Compute the class means of source features, for DMSE^s, RMT and SANTA.

    The features are computed with batch statistics, as at test time.

    Args:
        model: The source model, or a `Classifier` around it.
        loader: Batches of source images and labels: pairs, or mappings or objects with ``x`` and ``y``.
        most: Stop reading after this many images.
        missing: What to do about a class without images: "raise" a DataError, or take its row of the "classifier".

    Returns:
        The prototypes (C, d), for the argument ``prototypes`` of these methods.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = bn_cnn()
        >>> loader = [(torch.rand(20, 3, 16, 16), torch.arange(20) % 10)]
        >>> prototypes = ctta.prototypes_from_source(model, loader)
        >>> adapter = ctta.DMSE(model, prototypes=prototypes)
        >>> len(prototypes), adapter.source_free
        (10, False)
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
        if int(counts.sum()) >= most:
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
    """Return the initial prototypes of a method.

    Args:
        given: Prototypes (C, d) from the user, which are checked and copied, or None for those of the classifier.
        model: The classifier.
    """
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
    """Return the images and labels of a source batch, and check both.

    Args:
        batch: A pair, or a mapping or object with ``x`` and ``y``.
        classes: The number of classes.

    Raises:
        DataError: If there is not one label below ``classes`` for each image.
    """
    x = source_images(batch)
    y = batch["y"] if isinstance(batch, Mapping) else batch.y if hasattr(batch, "y") else batch[1]
    if not isinstance(y, Tensor) or y.shape != (len(x),) or y.is_floating_point():
        raise DataError(f"{len(x)} source images need {len(x)} integer labels; got {getattr(y, 'shape', y)!r}.")
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise DataError(f"Source labels must be in 0..{classes - 1}; got {int(y.min())}..{int(y.max())}.")
    return x, y


def source_images(batch: Any) -> Tensor:
    """Return the images of a source batch, and check them.

    Args:
        batch: Images, a pair, or a mapping or object with ``x``.
    """
    x = batch
    if isinstance(batch, Mapping):
        x = batch["x"]
    elif not isinstance(batch, Tensor):
        x = batch.x if hasattr(batch, "x") else batch[0]
    if check_images(x) is not None:
        raise NonFiniteImages("Source images must be finite; some contain NaN or Inf.")
    images: Tensor = x
    return images
