"""What `ctta ls methods` shows of a method, readable without importing torch.

The facts of the built-in methods are generated from their classes into data/methods.json by scripts/method_table.py;
a test fails while that file is out of date.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctta.adapter import Adapter

PATH = Path(__file__).parent / "data" / "methods.json"


@dataclass(frozen=True)
class MethodFacts:
    """A method in one row of a table.

    Args:
        name: The name used on the command line.
        home: Where the class is, as ``module:class``.
        learns: What the method trains, or "nothing".
        source_free: Whether it needs no source data in its default settings.
        forward: Forward passes per step.
        backward: Backward passes per step.
        summary: The first paragraph of the class's docstring.
    """

    name: str
    home: str
    learns: str
    source_free: bool
    forward: int
    backward: int
    summary: str


def facts_of(name: str, cls: type[Adapter]) -> MethodFacts:
    """Read the facts of a method from its class."""
    forward, backward = cls.passes
    return MethodFacts(
        name=name,
        home=f"{cls.__module__}:{cls.__qualname__}",
        learns=cls.trains if cls.learns else "nothing",
        source_free=cls.source_free,
        forward=forward,
        backward=backward,
        summary=" ".join((cls.__doc__ or "").split("\n\n")[0].split()),
    )


@cache
def built_in() -> dict[str, MethodFacts]:
    """Return the facts of every built-in method, by name."""
    return {row["name"]: MethodFacts(**row) for row in json.loads(PATH.read_text(encoding="utf-8"))}
