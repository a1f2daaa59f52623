"""ctta do: run commands from a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctta.cli.command_line import plain, remember
from ctta.cli.toml_file import read_lines


def do(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(help='A TOML file with command = "run" and the arguments and options of that command.')
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command lines without running them.")] = False,
) -> None:
    """Run the command in a TOML file, or every table of its array "do" in order.

    Keys are the names shown by --help: seed = "0..4" for --seed 0..4; true or false for flags; a list for options that
    may be repeated; a table for --set. Paths are relative to the working directory, not to the file.
    """
    root = ctx.find_root()
    lines = read_lines(file, root.command)
    # Parse all commands before running the first: a mistake in the last one should not show up after hours.
    contexts = [line.command.make_context(" ".join(line.path), list(line.arguments), root) for line in lines]
    for line, context in zip(lines, contexts, strict=True):
        words = (*line.path, *line.arguments)
        if dry_run:
            typer.echo(plain(words))
            continue
        if len(lines) > 1:
            typer.echo(plain(words), err=True)
        remember(words)
        with context:
            line.command.invoke(context)
