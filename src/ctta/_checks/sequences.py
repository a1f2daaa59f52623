"""Read arguments that are lists, where a single value is read as a list of one, or paths."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from ctta._checks.arguments import shown
from ctta.errors import ParameterError

Item = TypeVar("Item", str, int)


def names_of(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Read an argument that lists names.

    Args:
        given: The names, or a single one.
        what: The argument's name, for messages.

    Raises:
        ParameterError: If it is neither, or holds something other than text.

    Example:
        >>> names_of("fog", "domains"), names_of(["fog", "snow"], "domains")
        (('fog',), ('fog', 'snow'))
    """
    return _listed(given, str, what, "names")


def numbers_of(given: int | Iterable[int], what: str) -> tuple[int, ...]:
    """Read an argument that lists whole numbers, as `names_of` does for names.

    Args:
        given: The numbers, or a single one.
        what: The argument's name, for messages.
    """
    return _listed(given, int, what, "whole numbers")


def paths_of(given: str | Path | Iterable[str | Path], what: str) -> tuple[Path, ...]:
    """Read an argument that lists paths, as `names_of` does for names.

    Args:
        given: The paths, or a single one.
        what: The argument's name, for messages.
    """
    paths = (given,) if isinstance(given, (str, Path)) else given
    plain = (str(path) if isinstance(path, Path) else path for path in paths) if isinstance(paths, Iterable) else paths
    return tuple(Path(path) for path in _listed(plain, str, what, "paths"))


def path_of(given: object, what: str) -> Path:
    """Read an argument that is one path.

    Args:
        given: The path.
        what: The argument's name, for messages.

    Raises:
        ParameterError: If it is neither text nor a path.
    """
    if not isinstance(given, (str, os.PathLike)) or isinstance(os.fspath(given), bytes):
        raise ParameterError(f"The {what!r} must be a path. Got {shown(given)} instead.")
    return Path(given)


def _listed(given: object, kind: type[Item], what: str, words: str) -> tuple[Item, ...]:
    if isinstance(given, kind):
        given = (given,)
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ParameterError(f"The {what!r} must be a list of {words}. Got {given!r} instead.")
    found: list[Item] = []
    for value in given:
        if isinstance(value, bool) or not isinstance(value, kind):
            raise ParameterError(f"The {what!r} must be a list of {words}. Got {value!r} in it.")
        found.append(value)
    return tuple(found)
