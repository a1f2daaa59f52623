"""The option --ray [ADDRESS], whose value may be left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from ctta.cli.flags import Command

HELP = (
    "Send the runs to a Ray cluster: the one at ADDRESS, else the one named by RAY_ADDRESS or running on this machine, "
    "else a new one on this machine. The workers need ctta, and --out and all files under the same paths as here."
)

ADDRESS = re.compile(r"|auto|local|\S+:\d+")


class RayCommand(Command):
    """A command with the option --ray [ADDRESS]."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        return super().parse_args(ctx, with_address(args))


def with_address(arguments: Sequence[str]) -> list[str]:
    """Insert an empty address after a --ray without one.

    Args:
        arguments: Arguments of a command.
    """
    return [
        "--ray=" if here == "--ray" and not (following is not None and ADDRESS.fullmatch(following)) else here
        for here, following in zip_longest(arguments, arguments[1:])
    ]
