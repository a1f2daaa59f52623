"""The command line behind what is running, for records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextvars import ContextVar

from ctta.files import printable

_running: ContextVar[str] = ContextVar("command_line", default="")


def command_line() -> str:
    """The command line that is running, or the plain one a file stands for; empty where Python made the call."""
    return _running.get()


def plain(arguments: Sequence[str]) -> str:
    """Arguments as one would type them in a shell."""
    return printable(shlex.join(["ctta", *arguments]))


def remember(arguments: Sequence[str]) -> None:
    """Make these arguments the command line that is running."""
    _running.set(plain(arguments))
