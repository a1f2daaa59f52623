"""ctta do: command lines written in a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctta.cli.command_line import plain, remember
from ctta.cli.toml_file import read_lines


def do(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help='A TOML file: command = "run", and its arguments and options by name.')],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command lines, and run none.")] = False,
) -> None:
    """Run the command written in a TOML file, or one after the other those of its array of tables "do".

    Keys are the names that --help shows: seed = "0..4" for --seed 0..4; true and false for flags; a list for what may
    be repeated; a table for --set. Paths are relative to the working directory, not to the file.
    """
    root = ctx.find_root()
    lines = read_lines(file, root.command)
    # All are read before the first one runs: a mistake in the last is told now, not after hours.
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
