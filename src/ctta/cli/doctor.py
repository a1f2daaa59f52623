"""ctta doctor: what each method would do with the user's model."""

from __future__ import annotations

import dataclasses
import json
from inspect import isfunction
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from ctta.errors import ModelError
from ctta.imports import find_name, load_module, public_names, split_target, stdout_to_stderr, user_code

if TYPE_CHECKING:
    from torch import nn

    from ctta.doctor import Diagnosis


def doctor(
    target: Annotated[
        str, typer.Argument(help="package.module:name or file.py:name, a model or a function giving one")
    ],
    image_size: Annotated[
        int | None, typer.Option(help="also take one step of every method on two random images of this side", min=1)
    ] = None,
    channels: Annotated[int, typer.Option(help="channels of those images", min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say what each method would do with a model: head, norm layers, trained parameters, smallest batch, memory."""
    from ctta.doctor import examine  # noqa: PLC0415, torch is imported where it is needed

    model = load_model(target)
    # Copying the model and its forward pass run the user's code as well.
    with stdout_to_stderr():
        diagnosis = examine(model, image_size=image_size, channels=channels)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(diagnosis), indent=2))
    else:
        _print(diagnosis)


def load_model(target: str) -> nn.Module:
    """Load the model that ``package.module:name`` or ``file.py:name`` names.

    Args:
        target: The name of a model, or of a function or class to call for one. Without a name, the module must have
            only one model, or else only one function.

    Raises:
        UserCodeError: If the code does not exist or fails.
        ModelError: If what it gives is not a torch.nn.Module.
    """
    from torch import nn  # noqa: PLC0415

    place, name = split_target(target)
    module = load_module(place)
    found = find_name(module, name or _only_model(module, place), place)
    if callable(found) and not isinstance(found, nn.Module):
        with user_code(f"Calling {target}"):
            found = found()
    if not isinstance(found, nn.Module):
        raise ModelError(f"{target} must be, or return, a torch.nn.Module; got {type(found).__name__}.")
    return found


def _only_model(module: ModuleType, place: str) -> str:
    """Name the one model of a module: an nn.Module, or else a function defined there."""
    from torch import nn  # noqa: PLC0415

    own = {name: find_name(module, name, place) for name in public_names(module)}
    models = [name for name, value in own.items() if isinstance(value, nn.Module)]
    makers = [name for name, value in own.items() if isfunction(value) and value.__module__ == module.__name__]
    for names in (models, makers):
        if len(names) == 1:
            return names[0]
    raise ModelError(
        f"Which model of {place}? Name it as {place}:name. It has: {', '.join(models + makers) or 'none'}."
    )


def _print(diagnosis: Diagnosis) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console()
    head = "none found"
    if diagnosis.head is not None:
        head = f"{diagnosis.head!r}, {diagnosis.num_features} features to {diagnosis.num_classes} classes"
    norms = ", ".join(f"{count} {kind}" for kind, count in diagnosis.norms.items()) or "none"
    console.print(f"{diagnosis.model}: {diagnosis.parameters:,} parameters", highlight=False)
    console.print(f"head: {head}\nnorm layers: {norms}\n", highlight=False)
    table = Table("method", "trains", "smallest batch", "memory", "passes", "source data", box=None, pad_edge=False)
    for report in diagnosis.methods:
        if report.refusal is None:
            forward, backward = report.passes
            table.add_row(
                report.name,
                f"{report.trained:,}",
                str(report.smallest_batch),
                f"{report.memory / 1e6:.1f} MB",
                f"{forward} forward, {backward} backward",
                "not needed" if report.source_free else "needed",
            )
    console.print(table)
    refused = [report for report in diagnosis.methods if report.refusal is not None]
    for report in refused:
        console.print(f"{report.name} refuses. {report.refusal}", highlight=False, markup=False)
