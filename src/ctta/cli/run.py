"""ctta run: one method on one stream, for one seed or several."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ctta._system.results import keep_for_results, write_result
from ctta.cli import options
from ctta.cli.command_line import command_line
from ctta.cli.names import check_names, default_model
from ctta.cli.options import parse_names, parse_seeds, parse_settings, parse_sweeps, parse_targets
from ctta.datasets import DATASETS, get_dataset, locate
from ctta.errors import ParameterError
from ctta.protocol import PROTOCOLS, get_protocol
from ctta.registry import BUILT_IN


class OtherNorm(str, Enum):
    """Norm layers of a model without batch norm."""

    layer = "layer"
    group = "group"


class ImageOrder(str, Enum):
    """The order of the images of a domain."""

    shuffled = "shuffled"
    stored = "stored"


def _built_in(registry: Any) -> str:
    """List the built-in names of a registry, for help."""
    *names, last = [entry.name for entry in registry.entries(plugins=False) if entry.origin == BUILT_IN]
    return f"{', '.join(names)} or {last}"


STREAM = (
    f"{_built_in(DATASETS)}; the path of a folder or npz of your own images; or a Dataset of your own as "
    "package.module:name or file.py:name."
)


def run(
    method: Annotated[str, typer.Argument(help=f"A method: a name from ctta ls methods, {options.OWN}.")],
    stream: Annotated[str, typer.Argument(help=STREAM)],
    model: options.Model = None,
    weights: options.Weights = None,
    data: options.Data = None,
    image_list: options.ImageList = None,
    clean: options.Clean = None,
    source_data: options.SourceData = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set an argument of the method. May be repeated."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="NAME=VALUE,...",
            help="Run once for each of these values of an argument of the method. May be repeated: all combinations.",
        ),
    ] = None,
    norm: Annotated[
        OtherNorm | None,
        typer.Option(
            help="Norm layers of a model without batch norm: use the optimizer published for such models, which Tent, "
            "EATA, SAR and DeYO have."
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help=f"{_built_in(PROTOCOLS)} (ctta ls protocols explains them); or a Protocol of your own as "
            "package.module:name or file.py:name."
        ),
    ] = "continual",
    times: Annotated[int, typer.Option(min=1, help="Rounds of a recurring stream.")] = 1,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Set an option of the protocol. May be repeated."),
    ] = None,
    order: Annotated[
        ImageOrder, typer.Option(help="Order of the images of a domain: shuffled with the seed, or as stored.")
    ] = ImageOrder.shuffled,
    corruptions: options.Corruptions = None,
    severity: Annotated[int, typer.Option(min=1, max=5, help="Severity of the corruptions.")] = 5,
    images: options.Images = None,
    side: options.Side = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Images per batch.", show_default="the dataset's, see ctta ls streams"),
    ] = None,
    seed: Annotated[str, typer.Option(help="A seed, several separated by commas, or a range such as 0..4.")] = "0",
    learn: Annotated[bool, typer.Option(help="Learn from the stream, or only predict.")] = True,
    device: options.Device = None,
    workers: options.Workers = 1,
    ray: options.Ray = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the adapted model next to its record.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of run records.")] = Path("runs"),
    track: options.Track = None,
    tensorboard: options.Tensorboard = None,
    save_every: options.SaveEvery = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a method on a stream. An interrupted run resumes; a finished one is not repeated.

    The method uses the settings published for the dataset (its recipe), changed by --norm and --set.
    """
    check_names([method], model)
    targets = parse_targets(track, tensorboard)
    if as_json:
        keep_for_results()
    PROTOCOLS.check(protocol)
    if times != 1 and not get_protocol(protocol).repeats:
        raise ParameterError(f"{protocol} does not repeat. Leave out --times, or use --protocol recurring.")
    stream, data = locate(stream, data)
    dataset = get_dataset(stream)
    model = model or default_model(dataset)
    from ctta.bench.arguments import method_arguments  # noqa: PLC0415
    from ctta.bench.executors import run_jobs  # noqa: PLC0415
    from ctta.bench.folder import RunFolder  # noqa: PLC0415
    from ctta.bench.jobs import (  # noqa: PLC0415 - help and typing errors need no torch
        Inputs,
        Job,
        Procedure,
        RunOptions,
        Workload,
        measure_source,
    )
    from ctta.cli.bar import parts_bar  # noqa: PLC0415
    from ctta.cli.progress import RunsDisplay  # noqa: PLC0415
    from ctta.cli.steps import echo_classes, echo_steps, echo_swept  # noqa: PLC0415
    from ctta.cli.tables import echo_comparison  # noqa: PLC0415
    from ctta.recommend import MIRROR, on_command_line  # noqa: PLC0415
    from ctta.registry import get_method  # noqa: PLC0415

    inputs = Inputs(
        stream=stream,
        model=model,
        weights=weights,
        data=data,
        image_list=image_list,
        clean=clean,
        source_data=source_data,
        corruptions=None if corruptions is None else parse_names(corruptions),
        images=images,
        side=side,
    )
    own = parse_settings(setting or [])
    fixed = _for_norm(method, norm, batch_size or dataset.batch_size) | own
    sweeps = parse_sweeps(sweep or [], own)
    procedure = Procedure(
        method=method,
        settings=fixed,
        protocol=protocol,
        times=times,
        order=order.value,
        options=parse_settings(option or [], "--option"),
        severity=severity,
        batch_size=batch_size,
        learn=learn,
    )
    how = RunOptions(keep=keep, command=command_line(), track=targets, device=device)
    jobs = [
        Job(Workload(replace(procedure, settings={**fixed, **swept}), inputs), how).with_seed(number)
        for swept in sweeps
        for number in parse_seeds(seed)
    ]
    for one in jobs:
        method_arguments(one.work)  # refuse any invalid value before the first run starts
    if get_protocol(protocol).needs_source:
        # Measure before the runs start: they share the results, whichever process they run in.
        with parts_bar(quiet=quiet) as show:
            for one in jobs:
                measure_source(one, show)
    left_to_default = get_method(method).arguments().keys() - jobs[0].work.procedure.settings.keys()
    if not quiet and dataset.name == "folder" and "mirror" in left_to_default:
        typer.echo(on_command_line(MIRROR), err=True)
    progress = None if quiet else RunsDisplay(len(jobs), out, here=workers == 1 and ray is None)
    records = run_jobs(jobs, out, workers=workers, ray=ray, save_every=save_every, progress=progress)
    if not quiet:
        echo_classes(records[0])
        echo_swept(method, dataset.name, jobs[0].work.batch_size, sweeps)
        echo_steps(records[0], RunFolder(out / records[0].address), learns=learn and get_method(method).learns)
    if as_json:
        write_result(json.dumps([record.to_json() for record in records], indent=1))
        return
    echo_comparison(records)
    for record in records:
        typer.echo(f"record {RunFolder(out / record.address).record_file}")


def _for_norm(method: str, norm: OtherNorm | None, batch_size: int) -> dict[str, Any]:
    """Return the arguments published for models with these norm layers; none for models with batch norm."""
    from ctta.registry import get_method  # noqa: PLC0415

    return {} if norm is None else get_method(method).for_norm(norm.value, batch_size)
