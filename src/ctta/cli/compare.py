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
        bool, typer.Option("--force", help="Also show runs that are not comparable; rows name what differs.")
    ] = False,
    paired: Annotated[
        bool,
        typer.Option("--paired", help="Show the differences from the best row on the same images instead of errors."),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="With --paired: the row to compare with, as written in the table."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Show run records in one table. Runs that are not comparable cause an error that names the difference.

    With --paired, the table has the difference of every row from the best one, with its standard error over the batches
    of images that all domains share; runs that did not see the same images cause an error.
    """
    if against is not None and not paired:
        raise typer.BadParameter("needs --paired", param_hint="--against")
    from ctta.bench.compare import table_order  # noqa: PLC0415
    from ctta.bench.folder import read_records, runs_with_steps  # noqa: PLC0415 - ctta --help must not import torch
    from ctta.cli.tables import echo_comparison, echo_paired  # noqa: PLC0415

    records = sorted((record for folder in folders for record in read_records(folder)), key=table_order)
    if paired:
        logs = runs_with_steps(folders)
        echo_paired(records, logs, against=against, form=form.value, force=force, as_json=as_json)
    else:
        echo_comparison(records, form=form.value, force=force, as_json=as_json)
