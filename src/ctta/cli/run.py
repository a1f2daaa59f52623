"""ctta run: one method on one stream, for one seed or several."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ctta.cli.command_line import command_line
from ctta.cli.ray_option import HELP as RAY
from ctta.errors import ParameterError

_MOST_SEEDS = 10_000


def run(
    method: Annotated[str, typer.Argument(help="A method: ctta ls methods.")],
    stream: Annotated[str, typer.Argument(help="digits, cifar10-c, cifar100-c, imagenet-c, domainnet-126 or folder.")],
    model: Annotated[
        str | None, typer.Option(help="The source model: ctta ls models. Default: the one that comes with ctta.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Its file, where it does not come with ctta.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the published files, or an npz of clean images.")] = None,
    image_list: Annotated[
        Path | None, typer.Option(help="For imagenet-c: a text file of the images to take, as lines synset/file.")
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option(help="An npz of the clean images, for protocols that show them; with an npz as --data its own."),
    ] = None,
    source_data: Annotated[
        Path | None,
        typer.Option(help="An npz of labelled source images: prototypes for rmt, santa, dmse; Fisher for eata."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An argument of the method; may be repeated."),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="continual, gradual, mixed, correlated, recurring, random-order, clean, then-clean (the corruptions, "
            "then their source) or then-clean-resting (without learning on the source)."
        ),
    ] = "continual",
    times: Annotated[int, typer.Option(min=1, help="Rounds of a recurring stream.")] = 1,
    corruptions: Annotated[
        str | None, typer.Option(help="Only these, with commas between, in this order. Default: the fifteen.")
    ] = None,
    severity: Annotated[int, typer.Option(min=1, max=5)] = 5,
    images: Annotated[int | None, typer.Option(min=1, help="Images per domain. Default: all.")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Default: 200 on CIFAR and own folders, 64 on ImageNet, 128 on DomainNet, 50 on the digits."
        ),
    ] = None,
    seed: Annotated[str, typer.Option(help="A seed, several with commas, or a range such as 0..4.")] = "0",
    learn: Annotated[bool, typer.Option(help="Learn from the stream, or only answer.")] = True,
    workers: Annotated[int, typer.Option(min=1, help="Runs at once, on one torch thread each when above 1.")] = 1,
    ray: Annotated[str | None, typer.Option("--ray", metavar="[ADDRESS]", help=RAY)] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the adapted model beside its record.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of run records.")] = Path("runs"),
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for events, written while the runs go on.")] = None,
    save_every: Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Run a method through a stream; a run that was interrupted goes on, and one that is done costs nothing.

    The method takes the settings published for the stream (its recipe) unless --set says otherwise.
    """
    from ctta.bench.jobs import Job  # noqa: PLC0415 - ctta --help takes no torch
    from ctta.bench.pool import do_all  # noqa: PLC0415
    from ctta.bench.usual import batch_size as usual_batch_size  # noqa: PLC0415
    from ctta.cli.compare import echo_comparison  # noqa: PLC0415
    from ctta.streams.corruptions import CORRUPTIONS  # noqa: PLC0415

    job = Job(
        method=method,
        stream=stream,
        model=model or default_model(stream),
        weights=weights,
        data=data,
        image_list=image_list,
        clean=clean,
        source_data=source_data,
        settings=parse_settings(setting or []),
        protocol=protocol,
        times=times,
        severity=severity,
        corruptions=CORRUPTIONS if corruptions is None else parse_names(corruptions),
        images=images,
        batch_size=batch_size or usual_batch_size(stream),
        learn=learn,
        keep=keep,
        command=command_line(),
        tensorboard=tensorboard,
    )
    jobs = [job.with_seed(number) for number in parse_seeds(seed)]
    follow = None if quiet else follower(len(jobs), workers, out, ray)
    records = do_all(jobs, out, workers=workers, ray=ray, save_every=save_every, follow=follow)
    if as_json:
        typer.echo(json.dumps(records, indent=1))
        return
    echo_comparison(records)
    for record in records:
        typer.echo(f"record {out / record['address'] / 'record.json'}")


def default_model(stream: str) -> str:
    """The source model that comes with ctta for a stream."""
    shipped = {"digits": "digits_resnet8", "cifar10-c": "cifar10_resnet20_ctta"}
    if stream not in shipped:
        raise ParameterError(f"{stream} needs --model; ctta comes with one for {' and '.join(shipped)} only.")
    return shipped[stream]


def parse_seeds(text: str) -> list[int]:
    """Seeds of "3", "1,2,5" or "0..4"."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            seeds: Sequence[int] = range(first, last + 1)
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds:
        raise ParameterError(f"Seeds are a number, numbers with commas between, or a range 0..4. Got {text!r} instead.")
    if seeds[-1] - seeds[0] >= _MOST_SEEDS and isinstance(seeds, range):
        raise ParameterError(f"A range of seeds may hold up to {_MOST_SEEDS}. Got {text!r} instead.")
    return list(dict.fromkeys(seeds))


def parse_names(text: str) -> tuple[str, ...]:
    """Names of a list with commas between."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Read "name=value" texts: a value is a Python literal, or else a plain word."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ParameterError(f"--set takes name=value. Got {pair!r} instead.")
        settings[name.strip()] = _literal(value)
    return settings


def _literal(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes in text that may be a plain word
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def follower(runs: int, workers: int, out: Path, ray: str | None) -> Any:
    """What shows the progress of so many runs, whose records go to a folder."""
    from ctta.cli.progress import Follower  # noqa: PLC0415

    return Follower(runs, out, one_by_one=workers == 1 and ray is None)
