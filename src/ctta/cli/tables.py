"""Print tables on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ctta.method_table import AFTER, AFTER_NOTE

if TYPE_CHECKING:
    from ctta.bench.folder import RunFolder
    from ctta.bench.record import Record
    from ctta.bench.steps import StepFacts


def echo_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows as a table.

    Args:
        rows: Mappings with the same keys, which become the header.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    _print(table)


def echo_errors(records: Sequence[Record]) -> None:
    """Print the error of every run in every domain, the lowest of a domain in bold.

    Args:
        records: Run records with the same domains.
    """
    lines = {domain: [f"{record.errors[domain]:.1f}" for record in records] for domain in records[0].errors}
    lines["mean"] = [f"{record.mean:.1f}" for record in records]
    marked = {name: _marked(shown) for name, shown in lines.items()}
    speeds = [Text(f"{record.images_per_second:.0f}") for record in records]
    names = [record.spec.method + ("" if record.predicts_first else AFTER) for record in records]
    width = Console().width if Console().is_terminal else None
    for part in _fitting(names, width):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("error, %", no_wrap=True)
        for name in names[part]:
            table.add_column(name, justify="right", no_wrap=True)
        for name, cells in marked.items():
            table.add_row(name, *cells[part], end_section=name == list(marked)[-2])
        table.add_row("images/s", *speeds[part])
        _print(table)
    if any(name.endswith(AFTER) for name in names):
        Console().print(AFTER_NOTE, highlight=False)


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


def echo_paired(
    records: Sequence[Record],
    logs: Mapping[str, RunFolder],
    *,
    against: str | None = None,
    form: str = "text",
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Print the paired differences between the rows of a table.

    Args:
        records: Run records.
        logs: The folders of the runs that have a step log, by address.
        against: Label of the row that the others are compared with; None means the best.
        form: "text", "markdown", "latex" or "csv".
        force: Accept runs that are not comparable in one table; those that did not see the same images are an error.
        as_json: Print the differences as JSON instead.
    """
    from ctta.bench.compare import rows  # noqa: PLC0415
    from ctta.bench.paired import pair_rows, paired_table  # noqa: PLC0415

    def steps_of(record: Record) -> list[StepFacts] | None:
        return logs[record.address].read_steps(record.counts) if record.address in logs else None

    pairing = pair_rows(rows(records, force=force), steps_of, against)
    typer.echo(json.dumps(pairing.to_json(), indent=1) if as_json else paired_table(pairing, form), nl=as_json)
    if any(difference.standard_error is None for difference in pairing.differences):
        typer.echo("No standard error with one batch per domain: use a smaller --batch-size.", err=True)


def _marked(shown: list[str]) -> list[Text]:
    best = min(shown, key=float)
    return [Text(text, style="bold" if text == best else "") for text in shown]


def _fitting(names: Sequence[str], width: int | None) -> list[slice]:
    """Split the columns into tables that fit into a terminal of this width."""
    # The name of a domain takes 20 characters, an error at least 7.
    most = len(names) if width is None else max(1, (width - 20) // max(7, *(len(name) + 2 for name in names)))
    return [slice(begin, begin + most) for begin in range(0, len(names), most)]


def _print(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        # A file or pipe has no width, so do not cut or fold anything.
        console = Console(width=max(80, console.measure(table, options=console.options.update(max_width=1000)).maximum))
    console.print(table)
