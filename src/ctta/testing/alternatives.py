"""Choose alternative values for a constructor argument from its annotation and current value."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.testing.subject import BATCH, Subject, Variation


def _same_view(x: Tensor, generator: Any) -> Tensor:
    return x


def _other_prototypes(model: Classifier) -> Mapping[str, Any]:
    return {"prototypes": model.weight.roll(1, 1)}


_SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9}

# Arguments that depend on another argument, or whose values cannot be guessed from their type.
KNOWN: Mapping[str, Variation] = {
    "momentum": (_SGD, _SGD | {"momentum": 0.5}),
    "nesterov": (_SGD | {"nesterov": True}, _SGD | {"nesterov": False}),
    "window": {"window": 2 * BATCH},
    "reset_every": {"reset_every": 2},
    "statistics": {"statistics": "share:0.5"},
    "view": {"view": _same_view},
    "projection": {"projection": None},
    "prototypes": _other_prototypes,
}


def alternatives(subject: Subject, name: str, adapter: Adapter) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield pairs of constructor arguments (baseline, changed) that differ in ``name``.

    Args:
        subject: The adapter under test; its ``variations`` take precedence over guesses.
        name: The argument to change.
        adapter: An adapter built with the default arguments.
    """
    for table in (subject.variations, KNOWN):
        if name in table:
            variation = table[name]
            chosen = variation(subject.classifier()) if callable(variation) else variation
            if isinstance(chosen, tuple):
                yield dict(chosen[0]), dict(chosen[1])
            else:
                yield {key: value for key, value in chosen.items() if key != name}, dict(chosen)
            return
    yield from (({}, {name: value}) for value in _values(adapter.settings[name], _kinds(type(adapter), name)))


def _values(now: Any, kinds: set[Any]) -> Iterator[Any]:
    if isinstance(now, bool):
        yield not now
        return
    literal = [kind.value for kind in kinds if isinstance(kind, _Choice)]
    yield from (value for value in sorted(literal, key=repr) if value != now)
    if isinstance(now, float) or (now is None and float in kinds):
        numbers = [0.5, 0.1, 0.9, 1.0, 0.0, 10.0] if not now else [now * f for f in (0.5, 2, 0.1, 10, 0.9, 1.1, -1)]
        yield from (value for value in numbers if value != now)
    elif isinstance(now, int) or (now is None and int in kinds):
        numbers = [2, 1, 3, 16] if not now else [now + 1, 2 * now, now - 1, now // 2]
        yield from (value for value in numbers if value != now)
    elif now is None and bool in kinds:
        yield from (True, False)


class _Choice:
    """One value of a Literal."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _kinds(cls: type[nn.Module], name: str) -> set[Any]:
    """Return the types and literal values in an argument's annotation, or nothing if it cannot be resolved."""
    for owner in cls.__mro__:
        constructor = vars(owner).get("__init__")
        if name in getattr(constructor, "__annotations__", {}):
            try:
                return set(_flat(typing.get_type_hints(constructor)[name]))
            except (NameError, TypeError):
                return set()
    return set()


def _flat(hint: Any) -> Iterator[Any]:
    origin = typing.get_origin(hint)
    if origin is Literal:
        yield from (_Choice(value) for value in typing.get_args(hint))
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(hint):
            yield from _flat(part)
    elif isinstance(hint, type):
        yield hint
