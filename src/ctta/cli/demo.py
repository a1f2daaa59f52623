"""ctta demo: run the built-in benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ctta.cli import options
from ctta.cli.command_line import command_line
from ctta.cli.names import check_names
from ctta.cli.options import parse_names
from ctta.registry import METHODS

# Without CoTTA, whose 32 views of every image would make the demo take longer than two minutes.
DEFAULT = "source,bn,tent,eata,rdumb,sar,deyo,rotta,santa,rmt,roid,dmse,trio"


def demo(
    methods: Annotated[
        list[str],
        typer.Option(
            "--methods", "--method", metavar="NAME,...", help='Methods to compare, or "all". May be repeated.'
        ),
    ] = [DEFAULT],  # noqa: B006
    images: Annotated[int, typer.Option(min=1, help="Digits per domain, at most 900.")] = 450,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per step.")] = 50,
    severity: Annotated[int, typer.Option(min=1, max=5, help="Severity of the corruptions.")] = 5,
    domains: Annotated[int, typer.Option(min=1, max=15, help="Number of corruptions to use, from the first.")] = 15,
    seed: Annotated[int, typer.Option(help="Seed of the image order, the corruptions and the methods.")] = 0,
    device: options.Device = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html and the run records.")] = Path("out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON instead of a table.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods on handwritten digits under fifteen corruptions, in a minute or two and without a download.

    Finished runs are reused.
    """
    names = tuple(METHODS.names()) if parse_names(methods) == ("all",) else parse_names(methods)
    if not names:
        raise typer.BadParameter("name at least one method", param_hint="--methods")
    check_names(names, None)
    # Imported here, so that help and usage errors do not import torch.
    from ctta.bench.demo import prepare_demo, run_demo  # noqa: PLC0415
    from ctta.cli.progress import DemoDisplay  # noqa: PLC0415
    from ctta.cli.tables import echo_errors  # noqa: PLC0415
    from ctta.report import require_extras, write_report  # noqa: PLC0415

    # Fail here if something is missing, not after a minute of work.
    require_extras()
    out.mkdir(parents=True, exist_ok=True)
    runs = out / "runs"
    stream, entries = prepare_demo(
        names, images=images, batch_size=batch_size, severity=severity, seed=seed, domains=domains, device=device
    )

    with DemoDisplay([adapter for _, adapter in entries], len(stream), quiet=quiet) as progress:
        records = run_demo(entries, stream, runs, command=command_line(), progress=progress)

    write_report([runs], out / "report.html", title="ctta demo")
    if as_json:
        typer.echo(json.dumps([record.to_json() for record in records], indent=1))
        return
    typer.echo(f"{images} digits per domain, severity {severity}, batches of {batch_size}, seed {seed}")
    echo_errors(records)
    typer.echo(f"records {runs}\nreport  {out / 'report.html'}")
