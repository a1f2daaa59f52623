"""--ray [ADDRESS]: an option that may stand without its value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from typer.core import TyperCommand

HELP = (
    "Send the runs to a Ray cluster: the one at ADDRESS, or the one that RAY_ADDRESS names or that runs on this "
    "machine, or a new one here. Its workers need ctta, and --out and all files under the paths they have here."
)

ADDRESS = re.compile(r"|auto|local|\S+:\d+")


class RayCommand(TyperCommand):
    """A command with an option --ray whose address may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        return super().parse_args(ctx, with_address(args))


def with_address(arguments: Sequence[str]) -> list[str]:
    """The arguments with an empty address for a --ray that has none."""
    return [
        "--ray=" if here == "--ray" and not (following is not None and ADDRESS.fullmatch(following)) else here
        for here, following in zip_longest(arguments, arguments[1:])
    ]
