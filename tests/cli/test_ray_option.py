"""--ray with an address, without one, and with an empty one."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ctta.cli.ray_option import RayCommand

app = typer.Typer()


@app.command(cls=RayCommand)
def command(words: list[str], ray: Annotated[str | None, typer.Option("--ray")] = None, quiet: bool = False) -> None:
    typer.echo((words, ray, quiet))


@pytest.mark.parametrize(
    ("line", "words", "ray", "quiet"),
    [
        ("tent digits", ["tent", "digits"], None, False),
        ("tent digits --ray", ["tent", "digits"], "", False),
        ("tent digits --ray --quiet", ["tent", "digits"], "", True),
        ("--ray tent digits", ["tent", "digits"], "", False),
        ("tent digits --ray=", ["tent", "digits"], "", False),
        ("--ray auto tent", ["tent"], "auto", False),
        ("--ray local tent", ["tent"], "local", False),
        ("--ray head:6379 tent", ["tent"], "head:6379", False),
        ("--ray [::1]:6379 tent", ["tent"], "[::1]:6379", False),
        ("--ray ray://head:10001 tent", ["tent"], "ray://head:10001", False),
        ("--ray=head:6379 tent", ["tent"], "head:6379", False),
        ("--ray my.module:Net", ["my.module:Net"], "", False),
    ],
)
def test_an_address_may_follow_or_not(line: str, words: list[str], ray: str | None, quiet: bool) -> None:
    result = CliRunner().invoke(app, line.split())
    assert result.output.strip() == str((words, ray, quiet))


def test_a_file_of_command_lines_can_leave_it_empty() -> None:
    result = CliRunner().invoke(app, ["tent", "--ray", ""])
    assert result.output.strip() == str((["tent"], "", False))
