"""Names of the user's own code: ``package.module:name``, ``file.py:name`` or ``file.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def split_target(target: str) -> tuple[str, str]:
    """Split ``module:name`` into the module or file and the name.

    Args:
        target: The target; without a name, the second part is empty.

    Example:
        >>> split_target("mine.py:build"), split_target("mine.py")
        (('mine.py', 'build'), ('mine.py', ''))
    """
    if target.endswith(".py"):
        return target, ""
    origin, colon, name = target.rpartition(":")
    return (origin, name) if colon else (target, "")


def is_target(name: str) -> bool:
    """Return whether a name refers to the user's own code: ``package.module:name``, ``file.py`` or ``file.py:name``.

    Args:
        name: The name.
    """
    return ":" in name or name.endswith(".py")


def absolute_target(name: str) -> str:
    """Make the path in a name absolute, for use in another working directory.

    Args:
        name: Any name; only files and ``hf:`` folders have a path.
    """
    return _with_path(name, Path.absolute)


def bare_target(name: str) -> str:
    """Remove the folders from the path in a name.

    Args:
        name: Any name; only files and ``hf:`` folders have a path.

    Example:
        >>> bare_target("/home/me/mine.py:build")
        'mine.py:build'
    """
    return _with_path(name, lambda path: Path(path.name))


def _with_path(name: str, change: Callable[[Path], Path]) -> str:
    file, attribute = split_target(name)
    if file.endswith(".py"):
        return f"{change(Path(file))}{f':{attribute}' if attribute else ''}"
    return f"hf:{change(Path(name[3:]))}" if name.startswith("hf:") else name


def target_origin(target: str) -> str:
    """Return the module or file name of a target, without its folder.

    Args:
        target: ``package.module:name`` or ``file.py:name``.
    """
    home, _ = split_target(target)
    return Path(home).name if home.endswith(".py") else home
