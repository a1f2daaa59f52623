"""ctta compare: show run records in one table."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Form(str, Enum):
    """Format of the table."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders with run records, or record files.")],
    form: Annotated[Form, typer.Option("--format", help="Table format.")] = Form.text,
    force: Annotated[
        bool, typer.Option("--force", help="Show runs that are not comparable, too; rows name what differs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Show run records in one table. Runs that are not comparable are an error that names the difference."""
    from ctta.bench.folder import read_records  # noqa: PLC0415 - ctta --help must not import torch
    from ctta.cli.tables import echo_comparison  # noqa: PLC0415

    echo_comparison(
        [r for folder in folders for r in read_records(folder)], form=form.value, force=force, as_json=as_json
    )
