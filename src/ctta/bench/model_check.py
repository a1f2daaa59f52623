"""Check that a model fits the images of a run."""

from __future__ import annotations

import torch
from torch import Tensor

from ctta._system.imports import message_of
from ctta.bench.data import Opened
from ctta.classifier import Classifier
from ctta.datasets import Dataset
from ctta.datasets.convert import check_classes
from ctta.errors import CttaError, ImageShape, ParameterError
from ctta.registry import bare_target
from ctta.streams.stream import Stream


def check_model(name: str, model: Classifier, dataset: Dataset, opened: Opened, stream: Stream) -> None:
    """Refuse a model that cannot take the images, or whose classes differ from those of the data.

    Args:
        name: Name of the model.
        model: The model.
        dataset: The dataset.
        opened: Its images.
        stream: The stream of these images.

    Raises:
        ImageShape: The model cannot take images of this size.
        LabelError: The labels count from 1.
        ParameterError: The model has different classes.
    """
    name, first = bare_target(name), stream.segments[0]
    # Two images, because some models drop the batch dimension of a single image.
    x = first.images.take(first.order[:2]).floats()
    logits = _logits(model, x if stream.device is None else x.to(stream.device), name, dataset.name)
    lowest = min(int(segment.images.y.min()) for segment in stream.segments)
    highest = max(int(segment.images.y.max()) for segment in stream.segments)
    if lowest == 1 and highest == logits.shape[1]:
        check_classes(torch.tensor([lowest, highest]), logits.shape[1])
    found = opened.classes or highest + 1
    if highest >= logits.shape[1] or (opened.classes is not None and found != logits.shape[1]):
        own = dataset.classes is None and opened.classes is not None
        advice = (
            "List all its classes in the order of its logits in classes.txt, beside the domains, or choose another "
            "model with --model."
            if own
            else "Choose a model of this data with --model: ctta ls models."
        )
        raise ParameterError(f"{name} has {logits.shape[1]} classes; {dataset.name} has {found}. {advice}")


def _logits(model: Classifier, x: Tensor, name: str, data: str) -> Tensor:
    """Predict without learning; a failure becomes an error about the size of the images."""
    try:
        with torch.no_grad():
            return model(x.to(next(model.parameters(), x).dtype))
    except CttaError:
        raise
    except Exception as error:  # a model can fail anywhere inside
        reason = message_of(error).split("\n", maxsplit=1)[0].rstrip(".")
        size = " x ".join(map(str, x.shape[1:]))
        raise ImageShape(
            f"{name} cannot take the images of {data}, {size} (channels, height, width): {reason}. Resize the images "
            "(--side, for image files of your own), or choose another model with --model."
        ) from error
