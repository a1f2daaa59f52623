"""ctta corrupt: make a corrupted version ("-C") of a dataset."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ctta.cli import options
from ctta.cli.options import parse_names, parse_numbers


class FileFormat(str, Enum):
    """File format of corrupted images in folders."""

    jpeg = "jpeg"
    png = "png"


class Constants(str, Enum):
    """The dataset whose published constants are used."""

    cifar = "cifar"
    imagenet = "imagenet"


def corrupt(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="A folder of images, an npz file with arrays x and y, or an npy file.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Output folder.")],
    corruptions: options.Corruptions = None,
    severity: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBER,...", help="Severities, 1 to 5. May be repeated.", show_default="all"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    scale: Annotated[
        Constants | None,
        typer.Option(help="Dataset whose constants to use.", show_default="by image size"),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels (npy) of images in an npy file.")] = None,
    side: Annotated[
        int | None, typer.Option(min=16, help="Crop the images of a folder to squares of this side, in pixels.")
    ] = None,
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="File format in folders: JPEG at quality 85, as published, or PNG.")
    ] = FileFormat.jpeg,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Corrupt images, in the layout of CIFAR-10-C (arrays) or ImageNet-C (folders). An interrupted command resumes.

    It computes on the CPU, so that the files do not depend on the device.
    """
    from ctta.cli.bar import parts_bar  # noqa: PLC0415 - ctta --help must not import torch
    from ctta.corruptions import CORRUPTIONS  # noqa: PLC0415
    from ctta.datasets.write.arrays import ArraySource  # noqa: PLC0415
    from ctta.datasets.write.corrupt_dataset import Recipe, corrupt_dataset  # noqa: PLC0415
    from ctta.datasets.write.folders import FolderSource  # noqa: PLC0415

    recipe = Recipe(
        corruptions=parse_names(corruptions or ()) or CORRUPTIONS,
        severities=parse_numbers(severity, "--severity") if severity else (1, 2, 3, 4, 5),
        seed=seed,
        scale=None if scale is None else scale.value,
    )
    images = (
        ArraySource(source, labels)
        if source.suffix in (".npz", ".npy")
        else FolderSource(source, file_format=file_format.value, side=side)
    )
    with parts_bar(quiet=quiet) as progress:
        made, kept = corrupt_dataset(images, out, recipe, progress=progress)
    result = {"out": str(out), "images": images.images, "made": made, "kept": kept}
    text = f"{out}: {len(made)} parts made, {len(kept)} already there and verified"
    typer.echo(json.dumps(result) if as_json else text)
