"""The command line. Results go to stdout and progress to stderr; exit codes: 0 success, 1 failure, 2 wrong usage."""

from __future__ import annotations

import difflib
import io
import sys
from typing import Annotated, Any

import typer

from ctta._system.allocator import keep_freed_memory
from ctta._system.files import printable
from ctta._system.imports import exit_error
from ctta._system.results import own_stdout
from ctta.cli import train
from ctta.cli.command_line import remember
from ctta.cli.compare import compare
from ctta.cli.corrupt import corrupt
from ctta.cli.demo import demo
from ctta.cli.do import do
from ctta.cli.doctor import doctor
from ctta.cli.fetch import fetch
from ctta.cli.flags import Command, Group
from ctta.cli.ls import ls
from ctta.cli.ray_option import RayCommand
from ctta.cli.replay import replay
from ctta.cli.report import report
from ctta.cli.reproduce import reproduce
from ctta.cli.run import run
from ctta.cli.serve import serve
from ctta.errors import CttaError
from ctta.version import __version__

__all__ = ["app", "main"]


# Commands that, run again after an interruption, continue.
_CONTINUING = {
    "run": "a run resumes from its checkpoint, and finished runs are reused",
    "reproduce": "a run resumes from its checkpoint, and finished runs are reused",
    "demo": "finished runs are reused",
}


class _Group(Group):
    """Suggests the nearest command, and prints the errors of commands as one line on stderr."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; typer itself suggests a name only from version 0.20 on."""
        close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
        if close and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and remember them for the records of runs."""
        remember(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SystemExit as error:
            if error.code:  # not success in any case: rich exits so if the reader has closed the pipe
                raise
            typer.echo(printable(f"UserCodeError: {exit_error('The command', error)}"), err=True)
            raise typer.Exit(1) from error
        except BrokenPipeError:  # the reader, such as `head`, closed the pipe: click exits quietly
            raise
        except KeyboardInterrupt:
            if (how := _CONTINUING.get(ctx.invoked_subcommand)) is not None:
                typer.echo(f"Interrupted. The same command continues: {how}.", err=True)
            raise
        except (CttaError, OSError) as error:
            typer.echo(printable(f"{type(error).__name__}: {error}"), err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    help="Continual test-time adaptation for PyTorch.",
    pretty_exceptions_show_locals=False,  # the traceback of a user's own method stays readable
)
app.command("demo", cls=Command)(demo)
app.command("ls", cls=Command)(ls)
app.command("run", cls=RayCommand)(run)
app.command("reproduce", cls=RayCommand)(reproduce)
app.command("compare", cls=Command)(compare)
app.command("report", cls=Command)(report)
app.command("do", cls=Command)(do)
app.command("doctor", cls=Command)(doctor)
app.command("corrupt", cls=Command)(corrupt)
app.command("fetch", cls=Command)(fetch)
app.command("serve", cls=Command)(serve)
app.command("replay", cls=Command)(replay)
app.add_typer(train.app, name="train")


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"ctta {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Continual test-time adaptation for PyTorch."""


def main() -> None:
    """Run the command line."""
    keep_freed_memory()
    if sys.argv[1:2] != ["do"]:  # which runs several commands
        own_stdout()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may contain characters that the terminal's encoding lacks; stderr already escapes them.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="ctta")
