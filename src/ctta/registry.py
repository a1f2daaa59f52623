"""Names to methods."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from ctta.errors import UnknownMethod

if TYPE_CHECKING:
    from ctta.adapter import Adapter

    Method = TypeVar("Method", bound=type[Adapter])

_METHODS: dict[str, type[Adapter]] = {}


def register(cls: Method) -> Method:
    """Class decorator: make a method known under its lower-case class name."""
    _METHODS[cls.__name__.lower()] = cls
    return cls


def method(name: str) -> type[Adapter]:
    """The method of this name; an unknown one raises UnknownMethod with the nearest known."""
    known = methods()
    if name.lower() not in known:
        raise UnknownMethod(name, known)
    return known[name.lower()]


def methods() -> dict[str, type[Adapter]]:
    """Every registered method by name."""
    import_module("ctta.methods")  # registers the built-in ones
    return dict(_METHODS)
