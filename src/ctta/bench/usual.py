"""What a method takes on a dataset where nobody says otherwise."""

from __future__ import annotations

from typing import Any

from ctta.adapter import Adapter
from ctta.bench.paper import SETTINGS


def recipe(cls: type[Adapter], data: str) -> dict[str, Any]:
    """The arguments a method's recipe changes on these data."""
    # The digits are images of 32 pixels in ten classes.
    return dict(cls.recipes.get("cifar10-c" if data == "digits" else data, {}))


def batch_size(data: str) -> int:
    """The batch size that the recipes for these data belong to."""
    return next((setting.batch_size for setting in SETTINGS.values() if setting.stream == data), 200)


def usual(cls: type[Adapter], data: str) -> dict[str, Any]:
    """Every argument with its default or its recipe's value."""
    return cls.arguments() | recipe(cls, data)
