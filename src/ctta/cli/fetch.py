"""ctta fetch: download published datasets, or verify a local copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctta.cli import options

if TYPE_CHECKING:
    from ctta.fetch import Plan


def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help="cifar10, cifar100, cifar10-c, cifar100-c, imagenet-c; or imagenet-c-noise, -blur, -weather, "
            "-digital, -extra. Instructions only: imagenet-r, imagenet-a, imagenet-sketch, imagenet-v2, "
            "imagenet-c-bar, cifar10.1, pacs."
        ),
    ],
    to: Annotated[Path | None, typer.Option(help="Output folder.")] = None,
    check: Annotated[
        Path | None, typer.Option(help="Verify this archive or folder instead of downloading anything.")
    ] = None,
    packed: Annotated[bool, typer.Option("--packed", help="Leave the archive packed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be downloaded, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Download a published dataset, or verify a local copy. An interrupted download resumes."""
    from ctta import fetch as fetching  # noqa: PLC0415 - ctta --help must not import torch
    from ctta.cli.bar import bytes_bar  # noqa: PLC0415

    if (to is None) == (check is None):
        raise typer.BadParameter("give either --to DIR or --check PATH.")
    if check is not None:
        checked = fetching.check(name, check)
        typer.echo(json.dumps({"name": name, "checked": checked}) if as_json else "\n".join(checked))
        return
    assert to is not None
    plans = fetching.plan(name, to)
    if not as_json:
        typer.echo("\n\n".join(_lines(plan) for plan in plans))
    if dry_run:
        if as_json:
            typer.echo(json.dumps({"name": name, "plan": plans}))
        return
    with bytes_bar(name, quiet=quiet) as progress:
        found = fetching.fetch(name, to, keep_packed=packed, progress=progress)
    if as_json:
        typer.echo(json.dumps({"name": name, "plan": plans, "files": [str(path) for path in found]}))
    else:
        typer.echo("done: " + ", ".join(str(path) for path in found))


def _lines(plan: Plan) -> str:
    size = "not published" if plan["size"] is None else f"{plan['size']:,} bytes"
    rows = {
        "name": plan["name"],
        "source": plan["source"],
        "size": size,
        "sha256": plan["sha256"] or "not published",
        "md5": plan["md5"] or "not published",
        "target": plan["target"],
        "by hand": plan["by_hand"],
    }
    return "\n".join(f"{key:8s} {value}" for key, value in rows.items())
