"""ctta compare: show run records in one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ctta.bench.record import Record


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

    echo_comparison(
        [r for folder in folders for r in read_records(folder)], form=form.value, force=force, as_json=as_json
    )


def echo_comparison(
    records: Sequence[Record], *, form: str = "text", force: bool = False, as_json: bool = False
) -> None:
    """Print records as one table; warnings about rows that are not comparable go to stderr.

    Args:
        records: Run records.
        form: "text", "markdown", "latex" or "csv".
        force: Also print runs that are not comparable.
        as_json: Print rows and differences as JSON instead.
    """
    from ctta.bench.compare import differences, other_versions, rows, text_table, unlike_seeds  # noqa: PLC0415

    found = rows(records, force=force)
    unlike = differences(records)
    if as_json:
        typer.echo(json.dumps({"rows": [row.to_json() for row in found], "unlike": unlike}, indent=1))
        return
    for fact, values in unlike.items():
        typer.echo(f"NOT COMPARABLE: {fact} differs: {'; '.join(values)}", err=True)
    if seeds := unlike_seeds(found):
        typer.echo(f"OTHER SEEDS: the rows are not means over the same seeds: {'; '.join(seeds)}", err=True)
    if versions := other_versions(records):
        typer.echo(f"OTHER VERSION: another major version made some of these runs: {'; '.join(versions)}", err=True)
    typer.echo(text_table(found, form, mark=not unlike), nl=False)
