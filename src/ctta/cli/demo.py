"""ctta demo: the built-in benchmark."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

# All but EATA, which without a reset is RDumb, and RoTTA and CoTTA, which would take most of two minutes.
DEFAULT = "source,bn,tent,rdumb,sar,deyo,santa,rmt,roid,dmse"


def demo(
    methods: Annotated[str, typer.Option(help="Names with commas between, or all.")] = DEFAULT,
    images: Annotated[int, typer.Option(min=1, help="Digits per domain, 900 at most.")] = 450,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per step.")] = 50,
    severity: Annotated[int, typer.Option(min=1, max=5, help="Of the corruptions.")] = 5,
    domains: Annotated[int, typer.Option(min=1, max=15, help="Only the first corruptions of the fifteen.")] = 15,
    seed: Annotated[int, typer.Option(help="Of image order, corruptions and methods.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for demo.png and demo.json.")] = Path("out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the reports as JSON instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Compare methods on handwritten digits under fifteen corruptions: no download, a minute or two."""
    # Here, because ctta --help takes none of these.
    from ctta.bench.demo import demo_adapters, demo_stream, run_demo  # noqa: PLC0415
    from ctta.bench.plots import demo_figure, require_matplotlib  # noqa: PLC0415
    from ctta.cli.progress import Bars  # noqa: PLC0415
    from ctta.cli.tables import echo_errors  # noqa: PLC0415
    from ctta.files import write_atomically  # noqa: PLC0415
    from ctta.registry import methods as known  # noqa: PLC0415

    # What can fail fails here, before the minute of work.
    require_matplotlib()
    out.mkdir(parents=True, exist_ok=True)
    names = list(known()) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("no method is named", param_hint="--methods")
    adapters = demo_adapters(names, seed=seed)
    stream = demo_stream(images=images, batch_size=batch_size, severity=severity, seed=seed, domains=domains)

    with Bars(adapters, len(stream), quiet=quiet) as bars:
        reports = run_demo(adapters, stream, progress=bars.follow)

    what: dict[str, Any] = {
        "images": images,
        "batch_size": batch_size,
        "severity": severity,
        "seed": seed,
        "domains": list(stream.domains),
    }
    record = json.dumps(what | {"reports": [asdict(report) for report in reports]}, default=repr)
    write_atomically(out / "demo.json", record.encode())
    write_atomically(out / "demo.png", demo_figure(reports))
    if as_json:
        typer.echo(record)
        return
    typer.echo(f"{images} digits per domain, severity {severity}, batches of {batch_size}, seed {seed}")
    echo_errors(reports)
    typer.echo(f"plot   {out / 'demo.png'}\nrecord {out / 'demo.json'}")
