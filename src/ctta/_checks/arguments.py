"""Check constructor arguments against their annotations, before the constructor runs."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from typing_extensions import Unpack, get_type_hints

from ctta.errors import ParameterError

_LARGEST_INT = 2**63 - 1

Constructor = TypeVar("Constructor", bound=Callable[..., None])


@dataclass(frozen=True)
class Between:
    """Annotation of a number: the closed range in which it must lie.

    Args:
        low: The smallest value.
        high: The largest value; infinity for no limit.
    """

    low: float
    high: float

    def __str__(self) -> str:
        return f" of at least {self.low}" if self.high == math.inf else f" in [{self.low}, {self.high}]"


@dataclass(frozen=True)
class Readable:
    """Annotation of an argument that a function can read, such as text in a certain form.

    Args:
        accepts: Tells whether a value can be read.
        words: What is accepted, for messages.
    """

    accepts: Callable[[Any], bool]
    words: str


class CheckedArguments:
    """Base of classes whose keyword arguments are checked against their annotations before ``__init__`` runs.

    A number must be finite, None is accepted only if the annotation has it, and a bool is not a number. The ranges of
    ``Annotated[float, Between(0, 1)]`` are checked too.

    Example:
        >>> class Filter(CheckedArguments):
        ...     def __init__(self, *, share: float = 0.5) -> None:
        ...         self.share = share
        >>> Filter(share="half")
        Traceback (most recent call last):
            ...
        ctta.errors.ParameterError: The 'share' parameter of Filter must be a finite number. Got 'half' instead.
    """

    def _check_constructed(self) -> None:
        """Check the object at the end of its constructor."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the constructor that the subclass defines."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]


def check_arguments(cls: type, given: Mapping[str, Any]) -> None:
    """Check values for a class's constructor without building an object.

    Args:
        cls: The class. Options that its constructor passes to its bases are checked as well.
        given: The arguments by name. Names that no annotation describes are left to the constructor.

    Raises:
        ParameterError: If a value has the wrong type, is not finite, or lies outside its annotated range.
    """
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base):
            hints |= _hints(vars(base)["__init__"])
    _check(hints, given, cls.__name__)


@functools.cache
def collected_options(constructor: Callable[..., None]) -> type | None:
    """Find the kind of options that a constructor collects.

    Args:
        constructor: The ``__init__`` of a class.

    Returns:
        The TypedDict in its ``**options: Unpack[...]``, or None if there is none or it cannot be read.
    """
    for name, parameter in inspect.signature(constructor).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            try:
                hint = get_type_hints(constructor).get(name)
            except (NameError, TypeError):  # names that only a type checker imports
                return None
            kind = get_args(hint)[0] if get_origin(hint) is Unpack else None
            return kind if isinstance(kind, type) else None
    return None


def _checked(constructor: Constructor) -> Constructor:
    @functools.wraps(constructor)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        _check(_hints(constructor), given, type(self).__name__)
        constructor(self, *args, **given)
        if type(self).__init__ is checked:  # not that of a base
            self._check_constructed()

    return checked  # type: ignore[return-value]


def _check(hints: Mapping[str, Any], given: Mapping[str, Any], owner: str) -> None:
    for name, value in given.items():
        if name in hints and not _fits(value, hints[name]):
            raise ParameterError(
                f"The {name!r} parameter of {owner} must be {_words(hints[name])}. Got {shown(value)} instead."
                f"{_hint(value)}"
            )


def _hint(value: Any) -> str:
    too_large = isinstance(value, int) and abs(value) > _LARGEST_INT
    return f" Whole numbers go up to {_LARGEST_INT}; write a larger one as a float." if too_large else ""


@functools.cache
def _hints(constructor: Callable[..., None]) -> dict[str, Any]:
    """Return the annotations of the keyword-only arguments and of those in ``**options: Unpack[...]``."""
    try:
        hints = get_type_hints(constructor, include_extras=True)
        found = {}
        for name, parameter in inspect.signature(constructor).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY and name in hints:
                found[name] = hints[name]
            elif parameter.kind is parameter.VAR_KEYWORD and get_origin(hints.get(name)) is Unpack:
                found |= get_type_hints(get_args(hints[name])[0], include_extras=True)
    except (NameError, TypeError, ValueError):  # names that only a type checker imports, or no Python function
        return {}
    return found


def _fits(value: Any, hint: Any) -> bool:
    origin, members = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = [extra for extra in members[1:] if isinstance(extra, Between)]
        readable = [extra for extra in members[1:] if isinstance(extra, Readable)]
        return (
            _fits(value, members[0])
            and all(extra.low <= value <= extra.high for extra in ranges)
            and all(extra.accepts(value) for extra in readable)
        )
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in members)
    if origin is Literal:
        return any(type(value) is type(option) and value == option for option in members)
    if hint in (int, float):
        return _is_number(value, hint)
    return _has_type(value, hint)


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        return False
    # torch takes no larger ints, not even in place of floats.
    return abs(value) <= _LARGEST_INT if isinstance(value, int) else math.isfinite(value)


def _has_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin is None:
        return value is None
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is collections.abc.Sequence:  # anything that can be indexed, except text
        return hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, (str, bytes))
    return not isinstance(origin, type) or isinstance(value, origin)


def _words(hint: Any) -> str:
    """Describe what a hint accepts."""
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        readable = [extra.words for extra in extras if isinstance(extra, Readable)]
        ranges = [str(extra) for extra in extras if isinstance(extra, Between)]
        return readable[0] if readable else "".join([_words(base), *ranges])
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_words(member) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    simple = {float: "a finite number", int: "a whole number", bool: "True or False", type(None): "None", None: "None"}
    if hint in simple:
        return simple[hint]
    origin = get_origin(hint) or hint
    if origin is collections.abc.Callable:
        return "a function"
    return f"a {getattr(origin, '__name__', str(origin))}"


def shown(value: Any) -> str:
    """Format a value for a message, cut to 100 characters.

    Args:
        value: The value. Printing it may fail, as for an int of 5,000 digits.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001, the value is the user's
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= 100 else f"{text[:100]}..."
