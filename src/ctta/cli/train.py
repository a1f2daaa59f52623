"""ctta train: train source models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ctta.cli import options
from ctta.cli.flags import Command, Group
from ctta.cli.train_cifar import Lines, train_cifar10


def train_digits(
    out: Annotated[Path, typer.Option(help="Output file (safetensors).")],
    passes: Annotated[int, typer.Option(min=1, help="Passes over the training digits.")] = 40,
    seed: Annotated[int, typer.Option(help="Seed of the weights and the order of the images.")] = 0,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Train the source model of the demo, a ResNet-8, on scikit-learn's digits. Takes about a minute on one thread."""
    from rich.console import Console  # noqa: PLC0415 - ctta --help must not import torch
    from rich.progress import Progress  # noqa: PLC0415

    from ctta._system.device import choose_device  # noqa: PLC0415
    from ctta.nets.train import Training  # noqa: PLC0415
    from ctta.nets.train_digits import train_digits as run  # noqa: PLC0415

    where = choose_device(device)
    with Progress(console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("training", total=passes)

        def progress(number: int, loss: float) -> None:
            bar.update(task, completed=number, description=f"training, loss {loss:.3f}")

        clean = run(out, Training(passes=passes, seed=seed), progress=progress, device=where)
    result = {"file": str(out), "clean_error": clean}
    typer.echo(json.dumps(result) if as_json else f"{out}: error {clean:.2f} % on the test digits")


def train_pacs(
    data: Annotated[Path, typer.Option(help="Folder of the domains of PACS; only photo is used.")],
    weights: Annotated[Path, typer.Option(help="Weights of EfficientNet-Lite0 on ImageNet (see ctta ls models).")],
    out: Annotated[Path, typer.Option(help="Output file (safetensors).")],
    passes: Annotated[int, typer.Option(min=1, help="Passes over the photographs.")] = 6,
    side: Annotated[int, typer.Option(min=32, max=1024, help="Side of the images in pixels.")] = 224,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the head, the held-out photographs and the crops.")] = 0,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train the source model of PACS: head and batch norms of EfficientNet-Lite0, on nine tenths of the photographs."""
    from ctta._system.device import choose_device  # noqa: PLC0415 - ctta --help must not import torch
    from ctta.nets.train_pacs import HOW  # noqa: PLC0415
    from ctta.nets.train_pacs import train_pacs as run  # noqa: PLC0415

    how, where = replace(HOW, passes=passes, seed=seed), choose_device(device)
    clean = run(data, weights, out, how, side=side, progress=Lines(passes), device=where)
    result = {"file": str(out), "held_out_error": clean}
    typer.echo(json.dumps(result) if as_json else f"{out}: error {clean:.2f} % on the photographs that were held out")


app = typer.Typer(cls=Group, no_args_is_help=True, help="Train a source model.")
app.command("digits", cls=Command)(train_digits)
app.command("cifar10", cls=Command)(train_cifar10)
app.command("pacs", cls=Command)(train_pacs)
