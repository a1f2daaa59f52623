"""ctta train cifar10: train the bundled CIFAR-10 source models."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from ctta.cli import options
from ctta.cli.command_line import command_line

#: Shown as the default of an option whose value depends on --net.
OWN = "that of the net"


def train_cifar10(
    data: Annotated[Path, typer.Option(help="Folder with the two npz files that ctta fetch cifar10 writes.")],
    out: Annotated[Path, typer.Option(help="Output file (safetensors). FILE.state next to it is used to resume.")],
    net: Annotated[
        str, typer.Option(help="Architecture: resnet20, resnet32, ..., resnet20-gn (group norm), ... or vit-tiny.")
    ] = "resnet20",
    passes: Annotated[
        int | None, typer.Option(min=1, help="Passes over the training images.", show_default=OWN)
    ] = None,
    small_passes: Annotated[
        int | None,
        typer.Option(
            help="Passes, from the first, that use 24-pixel crops.", show_default=f"{OWN}, or 60 % of --passes"
        ),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.", show_default=OWN)] = None,
    label_smoothing: Annotated[
        float | None, typer.Option(min=0.0, max=0.99, help="Label smoothing.", show_default=OWN)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights and the order of the images.")] = 0,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a CIFAR-10 network. Takes up to two hours on one core; an interrupted training resumes."""
    from ctta._system.device import choose_device  # noqa: PLC0415 - ctta --help must not import torch
    from ctta._system.files import check_output  # noqa: PLC0415
    from ctta.datasets.cifar10 import load  # noqa: PLC0415
    from ctta.nets.cifar10 import SourceModel  # noqa: PLC0415
    from ctta.nets.train import error  # noqa: PLC0415
    from ctta.nets.train_cifar import train_cifar  # noqa: PLC0415

    check_output(out)
    source = SourceModel.named(net)
    how = source.training(passes=passes, small_passes=small_passes, lr=lr, label_smoothing=label_smoothing, seed=seed)
    train, test = load(data, "train"), load(data, "test")
    model = train_cifar(
        source.build,
        train.x,
        train.y,
        how,
        resume=out.with_name(out.name + ".state"),
        progress=Lines(how.passes),
        device=choose_device(device),
    )
    accuracy = 100 - error(model, test.x.float() / 255, test.y)
    source.save(model, out, how, accuracy=accuracy, command=command_line())
    result = {"file": str(out), "accuracy": accuracy}
    typer.echo(json.dumps(result) if as_json else f"{out}: accuracy {accuracy:.2f} % on the test images")


class Lines:
    """Prints a line on stderr ten times per pass.

    Args:
        passes: Number of passes.
    """

    def __init__(self, passes: int) -> None:
        self.passes, self.last, self.loss = passes, -1, 0.0
        self.since = time.monotonic()

    def __call__(self, number: int, percent: int, loss: float) -> None:
        """Print the progress of a step, if it is another tenth of its pass."""
        self.loss = loss if self.loss == 0 else 0.98 * self.loss + 0.02 * loss
        if percent // 10 != self.last:
            self.last = percent // 10
            took = time.monotonic() - self.since
            typer.echo(f"pass {number}/{self.passes} {percent:3d} %  loss {self.loss:.3f}  {took:.0f} s", err=True)
