"""Default arguments of a method on a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctta.datasets import DATASETS, Dataset
from ctta.errors import CttaError
from ctta.method_table import built_in
from ctta.registry import methods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctta.adapter import Adapter


def recipe(cls: type[Adapter], data: str, batch_size: int | None = None) -> dict[str, object]:
    """The arguments that the recipe of a method sets on a dataset.

    Args:
        cls: The method.
        data: Name of the dataset; an unknown one has no recipe.
        batch_size: Images per batch: the value of an argument of this name in a published recipe, such as ROID's. None
            leaves it at the published value. A recipe that a dataset defines itself is used as it is.
    """
    return _on(cls.recipes, cls.__name__.lower(), data, batch_size)


def recipe_named(method: str, data: str, batch_size: int | None = None) -> dict[str, object]:
    """Like `recipe`, but takes the name of a method, and does not import torch for built-in ones.

    Args:
        method: Name of the method, as in a record; an unknown one has no recipe.
        data: Name of the dataset.
        batch_size: Images per batch, as in `recipe`.
    """
    if method in built_in():
        return _on(built_in()[method].recipes, method, data, batch_size)
    known = methods()
    return recipe(known[method], data, batch_size) if method in known else {}


def batch_size(data: str) -> int:
    """The batch size that the recipes for a dataset assume.

    Args:
        data: Name of the dataset.
    """
    dataset = _known(data)
    return Dataset.batch_size if dataset is None else dataset.batch_size


def default_arguments(cls: type[Adapter], data: str, batch_size: int | None = None) -> dict[str, object]:
    """Every argument of a method, with the recipe's value or else the constructor's default.

    Args:
        cls: The method.
        data: Name of the dataset.
        batch_size: Images per batch, as in `recipe`.
    """
    return cls.arguments() | recipe(cls, data, batch_size)


def _on(
    recipes: Mapping[str, Mapping[str, object]], method: str, data: str, batch_size: int | None
) -> dict[str, object]:
    dataset = _known(data)
    if dataset is None or dataset.recipe is None:
        return {}
    chosen = dataset.recipe
    found = dict(recipes.get(chosen, {}) if isinstance(chosen, str) else chosen.get(method, {}))
    if batch_size is not None and isinstance(chosen, str) and "batch_size" in found:
        found["batch_size"] = batch_size
    return found | {"mirror": False} if "mirror" in found and not dataset.mirror else found


def _known(data: str) -> Dataset | None:
    """The dataset of a record; None if it is not known here, or its plug-in is broken."""
    entry = DATASETS.find(data)
    try:
        return None if entry is None else entry.load()
    except CttaError:
        return None
