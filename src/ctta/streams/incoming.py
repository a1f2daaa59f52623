"""Any stream of labelled images as batches: a DataLoader, (x, y) pairs, or batches as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from ctta.datasets.convert import float_images, labels_tensor
from ctta.errors import ParameterError
from ctta.streams.batch import Batch

#: The domain of batches that do not name one.
UNNAMED = "stream"


def batches_of(stream: Iterable[Any]) -> Iterator[Batch]:
    """Yield a stream's items as batches of float images and integer labels.

    Args:
        stream: An iterable of `Batch`, of pairs (images, labels) such as a DataLoader yields, or of mappings with the
            keys x and y. Pairs are numbered in order and belong to the domain "stream".

    Raises:
        ParameterError: If the stream cannot be iterated, or an item is none of these.
        InputError: If images or labels are not valid in a batch.
    """
    if isinstance(stream, (str, bytes, Tensor, Mapping)) or not (
        hasattr(stream, "__iter__") or hasattr(stream, "__getitem__")
    ):
        raise ParameterError(
            f"A stream is an iterable of batches, such as a DataLoader or ctta.streams.continual(domains). "
            f"Got {type(stream).__name__} instead."
        )
    for index, item in enumerate(stream):
        yield _batch(item, index)


def _batch(item: Any, index: int) -> Batch:
    if isinstance(item, Batch):
        x = float_images(item.x)
        y = labels_tensor(item.y, len(x))
        return item if x is item.x and y is item.y else replace(item, x=x, y=y)
    if isinstance(item, Mapping) and {"x", "y"} <= set(item):
        x, y = item["x"], item["y"]
    elif isinstance(item, (tuple, list)) and len(item) == 2:
        x, y = item
    else:
        found = f"{type(item).__name__} of {len(item)}" if isinstance(item, (tuple, list)) else type(item).__name__
        raise ParameterError(f"Every item of a stream must be a Batch or a pair (images, labels). Got {found} instead.")
    images = float_images(x)
    return Batch(images, labels_tensor(y, len(images)), UNNAMED, 0, index)
