"""The command line, in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from ctta.cli import app


def ctta(*words: object) -> Result:
    """Run ``ctta`` with these words; expected errors become one line and an exit code, as for a user."""
    return CliRunner().invoke(app, [str(word) for word in words])
