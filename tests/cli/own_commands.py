"""The commands under test, each behind the group that turns expected errors into one line."""

from __future__ import annotations

import typer
from typer.testing import CliRunner, Result

from ctta.cli import _Group
from ctta.cli.corrupt import corrupt
from ctta.cli.fetch import fetch

app = typer.Typer(cls=_Group)
app.command("corrupt")(corrupt)
app.command("fetch")(fetch)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
