"""Tables on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ctta.bench.evaluate import Report


def echo_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows of the same keys."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    _print(table)


def echo_errors(reports: Sequence[Report]) -> None:
    """Print the error of every method in every domain, the lowest of a row in bold."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("error, %", no_wrap=True)
    for report in reports:
        table.add_column(report.method, justify="right", no_wrap=True)
    for domain in reports[0].errors:
        table.add_row(domain, *_marked([report.errors[domain] for report in reports]))
    table.add_section()
    table.add_row("mean", *_marked([report.mean for report in reports]))
    table.add_row("images/s", *(f"{report.images_per_second:.0f}" for report in reports))
    _print(table)


def _marked(values: list[float]) -> list[Text]:
    shown = [f"{value:.1f}" for value in values]
    best = min(shown, key=float)
    return [Text(text, style="bold" if text == best else "") for text in shown]


def _print(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        # A file or pipe has no width: nothing is cut or folded.
        console = Console(width=max(80, console.measure(table, options=console.options.update(max_width=1000)).maximum))
    console.print(table)
