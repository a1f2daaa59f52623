"""Facts about the built-in methods that can be read without importing torch.

scripts/method_table.py generates them from the classes into data/methods.json; a test fails if that file is out of
date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctta.adapter import Adapter

#: Marks the methods that predict after using the batch, or a part of it, wherever errors are shown: their rows are not
#: strictly prequential.
AFTER = "†"
AFTER_NOTE = f"{AFTER} predicts after using the batch, or a part of it"

PATH = Path(__file__).parent / "data" / "methods.json"


@dataclass(frozen=True)
class MethodFacts:
    """What `ctta ls methods` shows about a method, and its recipes.

    Args:
        name: The name used on the command line.
        home: Where the class is, as ``module:class``.
        learns: What the method trains, or "nothing".
        source_free: Whether it needs no source data in its default settings.
        forward: Forward passes per step.
        backward: Backward passes per step.
        summary: The first paragraph of the class's docstring.
        recipes: The constructor arguments published for each benchmark.
        predicts_first: Whether it predicts before it uses anything from the batch.
        logits_are: What the logits are, if their softmax is not the confidence of the prediction.
    """

    name: str
    home: str
    learns: str
    source_free: bool
    forward: int
    backward: int
    summary: str
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    predicts_first: bool = True
    logits_are: str | None = None

    @property
    def module(self) -> str:
        """The module of the class."""
        return self.home.partition(":")[0]

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.home.partition(":")[2]


def facts_of(name: str, cls: type[Adapter]) -> MethodFacts:
    """Read the facts of a method from its class.

    Args:
        name: The name used on the command line.
        cls: The method.
    """
    forward, backward = cls.passes
    return MethodFacts(
        name=name,
        home=f"{cls.__module__}:{cls.__qualname__}",
        learns=cls.trains if cls.learns else "nothing",
        source_free=cls.source_free,
        forward=forward,
        backward=backward,
        summary=" ".join((cls.__doc__ or "").split("\n\n")[0].split()),
        recipes=cls.recipes,
        predicts_first=cls.predicts_first,
        logits_are=cls.logits_are,
    )


def after_mark(name: str) -> str:
    """Return the mark for a method that predicts after using the batch, or an empty string for any other.

    Args:
        name: The name used on the command line. Only built-in methods are marked.

    Example:
        >>> after_mark("lame"), after_mark("tent")
        ('†', '')
    """
    return AFTER if name in built_in() and not built_in()[name].predicts_first else ""


def no_confidences(names: Iterable[str]) -> dict[str, str]:
    """For methods whose softmax is not the confidence of the prediction, return what their logits are.

    Args:
        names: Names used on the command line. Only built-in methods declare it.

    Example:
        >>> no_confidences(["tent", "roid"])
        {'roid': 'multiplied by the share of each class in the batch'}
    """
    facts = built_in()
    return {name: said for name in names if name in facts and (said := facts[name].logits_are) is not None}


@cache
def built_in() -> dict[str, MethodFacts]:
    """Return the facts of every built-in method, by name."""
    return {row["name"]: MethodFacts(**row) for row in json.loads(PATH.read_text(encoding="utf-8"))}
