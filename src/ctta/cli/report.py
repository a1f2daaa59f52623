"""ctta report: run records as one page."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of run records, or records.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print file, runs and size as JSON.")] = False,
) -> None:
    """Write one page with tables, figures and the facts of every run; it needs no network and no other file."""
    from ctta.files import size  # noqa: PLC0415
    from ctta.report import TITLE, write_report  # noqa: PLC0415 - ctta --help takes no torch

    runs = write_report(folders, out, title=title or TITLE)
    written = out.stat().st_size
    if as_json:
        typer.echo(json.dumps({"file": str(out), "runs": runs, "bytes": written}))
    else:
        typer.echo(f"report {out}: {runs} run{'s' if runs != 1 else ''}, {size(written)}")
    if show:
        webbrowser.open(out.absolute().as_uri())
