"""ctta reproduce: run a table or figure of the paper, with the published numbers next to ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctta.cli import options
from ctta.cli.command_line import command_line
from ctta.cli.names import check_names
from ctta.cli.options import parse_names, parse_seeds, parse_targets
from ctta.datasets import locate
from ctta.datasets.catalog import no_path
from ctta.errors import UnknownStream
from ctta.paper.numbers import SETTINGS

if TYPE_CHECKING:
    from ctta.paper.reproduce import Row


def reproduce(
    name: Annotated[str, typer.Argument(help="A table or figure: ctta ls experiments.")],
    dataset: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(SETTINGS)}; or your own data: the path of a folder or npz, or a Dataset as "
            "package.module:name or file.py:name."
        ),
    ],
    data: options.Data = None,
    model: options.Model = None,
    weights: options.Weights = None,
    image_list: options.ImageList = None,
    clean: options.Clean = None,
    source_data: options.SourceData = None,
    methods: options.Methods = None,
    corruptions: options.Corruptions = None,
    images: options.Images = None,
    seed: Annotated[
        str | None,
        typer.Option(
            help="A seed, several separated by commas, or a range such as 0..4.", show_default="those of the experiment"
        ),
    ] = None,
    device: options.Device = None,
    workers: options.Workers = 1,
    ray: options.Ray = None,
    out: Annotated[Path, typer.Option(help="Folder of run records; figures go into figures/ below it.")] = Path("runs"),
    track: options.Track = None,
    tensorboard: options.Tensorboard = None,
    save_every: options.SaveEvery = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Run an experiment of the paper and print our numbers next to the published ones; finished runs are reused.

    --methods may also name a method of your own, which gets a row without a published number.
    """
    names = parse_names(methods or ())
    check_names(names, model)
    targets = parse_targets(track, tensorboard)
    if dataset not in SETTINGS:
        dataset, data = _own_data(dataset, data)
    from ctta.bench.executors import run_jobs  # noqa: PLC0415
    from ctta.bench.folder import RunFolder  # noqa: PLC0415
    from ctta.bench.jobs import Inputs, RunOptions  # noqa: PLC0415
    from ctta.cli.progress import RunsDisplay  # noqa: PLC0415
    from ctta.cli.steps import echo_steps  # noqa: PLC0415
    from ctta.paper import experiment  # noqa: PLC0415 - ctta --help takes no torch
    from ctta.paper.reproduce import Request, draw, notes, plan, rows, setting_of  # noqa: PLC0415
    from ctta.plots.style import require_matplotlib  # noqa: PLC0415

    table = experiment(name)
    if table.drawings:
        require_matplotlib()
    setting = setting_of(dataset)
    inputs = Inputs(
        stream=setting.stream,
        model=model or setting.backbone,
        weights=weights,
        data=data,
        image_list=image_list,
        clean=clean,
        source_data=source_data,
        corruptions=None if corruptions is None else parse_names(corruptions),
        images=images,
    )
    request = Request(
        dataset=dataset,
        inputs=inputs,
        methods=None if methods is None else frozenset(names),
        seeds=tuple(parse_seeds(seed or table.seeds)),
        options=RunOptions(command=command_line(), track=targets, device=device),
    )
    planned = plan(table, request)
    jobs = planned.jobs
    progress = None if quiet else RunsDisplay(len(jobs), out, here=workers == 1 and ray is None)
    records = run_jobs(jobs, out, workers=workers, ray=ray, save_every=save_every, progress=progress)
    outcomes = planned.outcomes(records, out)
    if not quiet and (learning := next((record for record in records if record.passes[1]), None)):
        echo_steps(learning, RunFolder(out / learning.address), learns=True)
    found, remarks, figures = rows(outcomes), notes(planned, outcomes), draw(planned, outcomes, out)
    if as_json:
        result = {"experiment": name, "dataset": dataset, "rows": [asdict(row) for row in found], "notes": remarks}
        typer.echo(json.dumps(result | {"figures": [str(path) for path in figures]}, indent=1))
        return
    typer.echo(f"{table.title}, {setting.name}, {inputs.model}: error, %")
    _echo(found)
    for remark in remarks:
        typer.echo(remark)
    for path in figures:
        typer.echo(f"figure {path}")


def _own_data(dataset: str, data: Path | None) -> tuple[str, Path | None]:
    """Locate data that the paper does not use; an unknown name raises an error with the names of the paper's data."""
    try:
        return locate(dataset, data)
    except UnknownStream:
        raise UnknownStream(dataset, SETTINGS, no_path(Path(dataset))) from None


def _echo(rows: Sequence[Row]) -> None:
    from ctta.cli.tables import echo_rows  # noqa: PLC0415 - ctta --help takes no rich tables

    echo_rows(
        [
            {
                "row": row.row,
                "ours": _with_spread(row.ours, row.spread),
                "paper": _with_spread(row.paper, row.paper_spread),
                "difference": _signed(row.difference),
                "seeds": row.seeds,
            }
            for row in rows
        ]
    )
    if any(row.paper_domains for row in rows):
        echo_rows([line for row in rows for line in _by_domain(row)])


def _by_domain(row: Row) -> list[dict[str, str]]:
    """Three lines for a row of a table: ours, the paper's and the difference in every domain."""
    ours, papers = row.domains, row.paper_domains
    lines = [{"row": row.row, "": "ours"} | {_short(d): f"{ours[d]:.1f}" for d in ours}]
    if papers:
        lines.append({"row": "", "": "paper"} | {_short(d): _with_spread(papers.get(d)) for d in ours})
        both = {d: ours[d] - papers[d] if d in papers else None for d in ours}
        lines.append({"row": "", "": "diff."} | {_short(d): _signed(value) for d, value in both.items()})
    return lines


def _short(domain: str) -> str:
    return domain.split("_", maxsplit=1)[0][:8]


def _with_spread(mean: float | None, spread: float | None = None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.1f}" if spread is None else f"{mean:.1f} ± {spread:.1f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"
