"""Default arguments of a method on a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctta.method_table import built_in
from ctta.registry import methods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctta.adapter import Adapter

_BATCH_SIZES = {"digits": 50, "imagenet-c": 64, "domainnet-126": 128}


def recipe(cls: type[Adapter], data: str) -> dict[str, Any]:
    """The arguments that the recipe of a method sets on a dataset.

    Args:
        cls: The method.
        data: Name of the dataset; one that the recipes do not name sets nothing.
    """
    return _on(cls.recipes, data)


def recipe_named(method: str, data: str) -> dict[str, Any]:
    """The same by the name of a method, without importing torch for the built-in ones.

    Args:
        method: Name of the method, as in a record; an unknown one sets nothing.
        data: Name of the dataset.
    """
    if method in built_in():
        return _on(built_in()[method].recipes, data)
    known = methods()
    return recipe(known[method], data) if method in known else {}


def batch_size(data: str) -> int:
    """The batch size that the recipes for a dataset assume.

    Args:
        data: Name of the dataset.
    """
    return _BATCH_SIZES.get(data, 200)


def default_arguments(cls: type[Adapter], data: str) -> dict[str, Any]:
    """Every argument of a method, with the recipe's value or else the constructor's default.

    Args:
        cls: The method.
        data: Name of the dataset.
    """
    return cls.arguments() | recipe(cls, data)


def _on(recipes: Mapping[str, Mapping[str, Any]], data: str) -> dict[str, Any]:
    # The digits are images of 32 pixels in ten classes.
    return dict(recipes.get("cifar10-c" if data == "digits" else data, {}))
