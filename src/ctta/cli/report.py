"""ctta report: write run records as one page."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders with run records, or record files.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output file.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print file, runs and size as JSON.")] = False,
) -> None:
    """Write one self-contained HTML page with tables, plots, and the command and settings of every run."""
    from ctta._system.files import size  # noqa: PLC0415
    from ctta.report import TITLE, write_report  # noqa: PLC0415 - ctta --help must not import torch

    runs = write_report(folders, out, title=title or TITLE)
    written = out.stat().st_size
    if as_json:
        typer.echo(json.dumps({"file": str(out), "runs": runs, "bytes": written}))
    else:
        typer.echo(f"report {out}: {runs} run{'s' if runs != 1 else ''}, {size(written)}")
    if show:
        webbrowser.open(out.absolute().as_uri())
