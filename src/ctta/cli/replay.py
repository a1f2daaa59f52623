"""ctta replay: repeat what a stream learnt, and compare the result with the snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ctta.cli import options, served
from ctta.cli.names import check_names
from ctta.errors import MissingData, ParameterError


def replay(
    stream: Annotated[Path, typer.Argument(help="Folder of the stream: STATE/streams/NAME.")],
    record: Annotated[Path, typer.Argument(help="Folder of recorded images: the service's --record.")],
    method: Annotated[
        str | None,
        typer.Option(help="The service's method.", show_default="what ctta.adapt recommends for the model"),
    ] = None,
    model: served.Served = None,
    weights: options.Weights = None,
    mode: Annotated[served.StreamMode, typer.Option(help="The service's --mode.")] = served.StreamMode.adapt,
    guard: served.Guard = None,
    device: options.Device = None,
    threads: Annotated[int, typer.Option(min=1, help="Torch threads, as in the service.")] = 1,
    recipe: served.Recipe = None,
    setting: served.Setting = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay a stream from its audit and recorded images, and compare every snapshot on disk, bit for bit.

    Use the same model, method and rules as the service. The exit code is 1 if a snapshot differs.
    """
    if model is None:
        raise ParameterError("ctta replay needs --model, the service's.")
    check_names([] if method is None else [method], model)
    if stream.parent.name != "streams":
        raise MissingData(f"{stream} is not the folder of a stream, which is called STATE/streams/NAME.")
    import torch  # noqa: PLC0415 - help and usage errors must not import torch

    from ctta.serve import replay as again  # noqa: PLC0415
    from ctta.serve.index import stream_of  # noqa: PLC0415

    name = stream_of(stream)
    if name is None:
        raise MissingData(f"{stream.absolute()} has no list of snapshots. Name a folder in STATE/streams.")
    torch.set_num_threads(threads)
    source = served.load_source(method, model, weights, setting or [], device, recipe)
    found = again.replay(
        stream.parent.parent,
        record,
        name,
        source.classifier,
        source.make,
        guard=served.parse_guard(guard),
        mode=mode.value,
    )
    if as_json:
        numbers = {"lines": found.lines, "learnt": found.learnt, "steps": found.learner.adapter.steps}
        typer.echo(json.dumps({**numbers, "compared": found.compared, "different": found.different}))
    else:
        differ = f"{len(found.different)} differ" + (f": {', '.join(found.different)}" if found.different else "")
        typer.echo(
            f"stream {name}: {found.lines} lines, {found.learnt} batches learnt, {len(found.compared)} "
            f"snapshots compared, {differ}"
        )
    if found.different:
        raise typer.Exit(1)
