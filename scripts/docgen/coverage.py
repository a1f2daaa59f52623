"""Find arguments of public classes and functions that no docstring explains."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from typing_extensions import is_typeddict

from ctta.errors import MissingExtra
from docgen.docstrings import parse

#: Packages whose own modules are checked; commands explain their arguments in their --help.
PACKAGES = (
    "ctta",
    "ctta._adapter",
    "ctta._checks",
    "ctta._system",
    "ctta.bench",
    "ctta.bench.executors",
    "ctta.corruptions",
    "ctta.datasets",
    "ctta.datasets.write",
    "ctta.fetch",
    "ctta.guard",
    "ctta.guarded",
    "ctta.methods",
    "ctta.nets",
    "ctta.paper",
    "ctta.plots",
    "ctta.report",
    "ctta.serve",
    "ctta.streams",
    "ctta.testing",
)


def undocumented() -> list[str]:
    """Return every argument without an entry under "Args", as ``module.function: argument``."""
    return [missing for package in PACKAGES for module in modules_of(package) for missing in _missing(module)]


def modules_of(package: str) -> Iterator[ModuleType]:
    """Import the public modules of a package, except subpackages and modules that need an extra that is not installed.

    Args:
        package: The name of the package.
    """
    for found in iter_modules(import_module(package).__path__):
        if not found.ispkg and not found.name.startswith("_"):
            try:
                module = import_module(f"{package}.{found.name}")
            except MissingExtra:
                continue
            yield module


def public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the public classes and functions that a module defines, in the order of their definition.

    Args:
        module: The module.
    """
    for name, found in vars(module).items():
        value = inspect.unwrap(found) if callable(found) else found
        named = getattr(value, "__name__", None) == name and getattr(value, "__module__", None) == module.__name__
        if named and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


def methods_of(cls: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the public methods that a class defines and that no base class in ctta documents.

    Its private base classes, such as the parts of `Adapter`, count as part of it.

    Args:
        cls: The class.
    """
    parts = [cls, *itertools.takewhile(_is_private, cls.__mro__[1:])]
    others = [base for base in cls.__mro__ if base not in parts and base.__module__.startswith("ctta")]
    for part in parts:
        for name, value in vars(part).items():
            function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            above = any(name in vars(base) for base in others + parts[parts.index(part) + 1 :])
            if inspect.isfunction(function) and not name.startswith("_") and not above:
                yield name, function


def _is_private(cls: type) -> bool:
    return any(part.startswith("_") for part in cls.__module__.split(".")) and cls.__module__.startswith("ctta.")


def _missing(module: ModuleType) -> Iterator[str]:
    for name, value in public(module):
        if inspect.isfunction(value):
            yield from _of(f"{module.__name__}.{name}", value, value.__doc__)
        elif inspect.isclass(value) and not is_typeddict(value):
            # typing generates the constructor of a Protocol, which is never called.
            if "__init__" in vars(value) and not getattr(value, "_is_protocol", False):
                yield from _of(f"{module.__name__}.{name}", value.__init__, value.__doc__)
            for method, function in methods_of(value):
                yield from _of(f"{module.__name__}.{name}.{method}", function, function.__doc__)


def _of(name: str, function: Callable[..., object], docstring: str | None) -> Iterator[str]:
    explained = parse(docstring).arguments
    for argument in inspect.signature(function).parameters:
        if argument not in ("self", "cls") and argument not in explained:
            yield f"{name}: {argument}"
