"""ctta train: train the bundled source models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ctta.cli import options
from ctta.cli.flags import Command, Group
from ctta.cli.train_cifar import train_cifar10


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


app = typer.Typer(cls=Group, no_args_is_help=True, help="Train a source model.")
app.command("digits", cls=Command)(train_digits)
app.command("cifar10", cls=Command)(train_cifar10)
