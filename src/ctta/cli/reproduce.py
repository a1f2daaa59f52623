"""ctta reproduce: the runs behind a table of the paper, with the published figures beside ours."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ctta.cli.run import follower, parse_seeds
from ctta.errors import MissingData, ParameterError


def reproduce(
    name: Annotated[str, typer.Argument(help="A table: ctta ls experiments.")],
    dataset: Annotated[str, typer.Argument(help="cifar10-c, cifar100-c, imagenet-c-5k or imagenet-c-50k.")],
    data: Annotated[Path, typer.Option(help="Folder of the published files, or an npz of clean images.")],
    model: Annotated[str | None, typer.Option(help="Another source model than the paper's: ctta ls models.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Its file.")] = None,
    source_data: Annotated[
        Path | None, typer.Option(help="An npz of source images, for the rows that need them.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Only rows of these methods, with commas between.")] = None,
    images: Annotated[int | None, typer.Option(min=1, help="Images per domain. Default: all.")] = None,
    seed: Annotated[str, typer.Option(help="A seed, several with commas, or a range such as 0..4.")] = "0",
    workers: Annotated[int, typer.Option(min=1, help="Runs at once, on one torch thread each when above 1.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of run records.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Run a table of the paper, or what is missing of it, and print our figures beside the published ones."""
    from ctta.bench import paper  # noqa: PLC0415 - ctta --help takes no torch
    from ctta.bench.experiments import experiment  # noqa: PLC0415
    from ctta.bench.jobs import Job  # noqa: PLC0415
    from ctta.bench.pool import do_all  # noqa: PLC0415

    if dataset not in paper.DATASETS:
        raise ParameterError(f"The dataset must be one of {', '.join(paper.DATASETS)}. Got {dataset!r} instead.")
    table, net, wanted = experiment(name), model or paper.BACKBONES[dataset], None
    if methods is not None:
        wanted = {method.strip() for method in methods.split(",")}
    cells = [cell for cell in table.cells(dataset) if wanted is None or cell.method in wanted]
    left_out = [cell.label for cell in cells if cell.source_data and source_data is None]
    cells = [cell for cell in cells if cell.label not in left_out]
    if not cells:
        raise MissingData("No row is left: the rows asked for need --source-data, or no row has these methods.")
    usual = 64 if dataset.startswith("imagenet") else 200
    seeds = parse_seeds(seed)
    jobs = [
        Job(
            method=cell.method,
            stream="imagenet-c" if dataset.startswith("imagenet") else dataset,
            model=net,
            weights=weights,
            data=data,
            source_data=source_data if cell.source_data else None,
            settings=cell.settings,
            protocol=cell.protocol,
            images=images,
            batch_size=cell.batch_size or usual,
            seed=number,
            command=shlex.join(["ctta", *sys.argv[1:]]),
        )
        for cell in cells
        for number in seeds
    ]
    records = do_all(jobs, out, workers=workers, follow=None if quiet else follower(len(jobs), workers))
    rows = [
        _row(cell.label, cell.published, records[i * len(seeds) : (i + 1) * len(seeds)]) for i, cell in enumerate(cells)
    ]
    notes = _notes(dataset, net, records[0], left_out)
    if as_json:
        typer.echo(json.dumps({"experiment": name, "dataset": dataset, "rows": rows, "notes": notes}, indent=1))
        return
    from ctta.cli.tables import echo_rows  # noqa: PLC0415

    typer.echo(f"{table.title}, {paper.DATASETS[dataset]}: mean error, %")
    echo_rows(rows)
    for note in notes:
        typer.echo(note)


def _row(label: str, published: float | None, records: list[dict[str, Any]]) -> dict[str, Any]:
    import statistics  # noqa: PLC0415

    means = [record["mean"] for record in records]
    ours = statistics.fmean(means)
    return {
        "row": label,
        "ours": f"{ours:.1f}" if len(means) == 1 else f"{ours:.1f} ± {statistics.stdev(means):.1f}",
        "paper": "-" if published is None else f"{published:.1f}",
        "difference": "-" if published is None else f"{ours - published:+.1f}",
        "seeds": len(means),
    }


def _notes(dataset: str, model: str, record: dict[str, Any], left_out: list[str]) -> list[str]:
    """Where ours is not the paper's experiment."""
    from ctta.bench import paper  # noqa: PLC0415

    notes = []
    if model != paper.BACKBONES[dataset]:
        notes.append(f"ANOTHER BACKBONE: {model}; the paper's is {paper.BACKBONES[dataset]}.")
    shown = max(count["images"] for count in record["counts"].values())
    if record["spec"]["images"] is not None or shown < paper.IMAGES[dataset]:
        notes.append(f"REDUCED SIZE: {shown} images per domain; the paper's is {paper.IMAGES[dataset]}.")
    if (origin := record["spec"]["data"]["origin"]) != "published":
        notes.append(f"OTHER FILES: the corrupted images are {origin}, not the published ones.")
    if left_out:
        notes.append(f"LEFT OUT, because they need --source-data: {', '.join(left_out)}.")
    return notes
