"""The current command line, for records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path

from ctta._system.files import printable
from ctta.registry import bare_target

_running: ContextVar[str] = ContextVar("command_line", default="")


def command_line() -> str:
    """Return the current command line, or that of the current command of a TOML file; "" outside the CLI."""
    return _running.get()


def plain(arguments: Sequence[str]) -> str:
    """Format arguments as one would type them in a shell.

    Args:
        arguments: Arguments of ctta.
    """
    return printable(shlex.join(["ctta", *arguments]))


def remember(arguments: Sequence[str]) -> None:
    """Make these arguments the current command line.

    Records must not contain paths of the user's own code: only the last part of ``folder/file.py:name``, of
    ``hf:folder/name`` and of an absolute path of --weights is kept.

    Args:
        arguments: Arguments of ctta.
    """
    _running.set(plain(_without_folders(arguments)))


def _without_folders(arguments: Sequence[str]) -> list[str]:
    words: list[str] = []
    for before, word in zip(["", *arguments], arguments, strict=False):
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        weights = "--weights" in (before, option)
        named = Path(value).name if weights and Path(value).is_absolute() else value
        words.append(option + equals + bare_target(named))
    return words
