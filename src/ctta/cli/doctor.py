"""ctta doctor: what each method would do with the user's model."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import sys
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctta.errors import ModelError

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

    diagnosis = examine(load_model(target), image_size=image_size, channels=channels)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(diagnosis), indent=2))
    else:
        _print(diagnosis)


def load_model(target: str) -> nn.Module:
    """The model that ``package.module:name`` or ``file.py:name`` names, called if it is a function or class.

    Without a name the module's only model, or function that builds one, is taken.
    """
    from torch import nn  # noqa: PLC0415

    place, _, name = target.partition(":")
    found: Any = _import(place)
    for part in (name or _only_model(found, place)).split("."):
        if not hasattr(found, part):
            raise ModelError(f"{place} has no {name!r}. It has: {', '.join(_public(found))[:200]}")
        found = getattr(found, part)
    if callable(found) and not isinstance(found, nn.Module):
        try:
            found = found()
        except Exception as error:
            raise ModelError(f"{target} raised {type(error).__name__}: {error}") from error
    if not isinstance(found, nn.Module):
        raise ModelError(f"{target} must be, or return, a torch.nn.Module; got {type(found).__name__}.")
    return found


def _only_model(module: Any, place: str) -> str:
    """The name of the one model of a module: an nn.Module, or else a function defined there."""
    from torch import nn  # noqa: PLC0415

    own = {name: getattr(module, name) for name in _public(module)}
    models = [name for name, value in own.items() if isinstance(value, nn.Module)]
    makers = [name for name, value in own.items() if isfunction(value) and value.__module__ == module.__name__]
    for names in (models, makers):
        if len(names) == 1:
            return names[0]
    raise ModelError(
        f"Which model of {place}? Name it as {place}:name. It has: {', '.join(models + makers) or 'none'}."
    )


def _public(module: Any) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_")]


def _import(place: str) -> Any:
    if place.endswith(".py"):
        path = Path(place)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.exists() or spec is None or spec.loader is None:
            raise ModelError(f"There is no Python file at {path.absolute()}.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not place.startswith(error.name):
            raise
        raise ModelError(f"There is no module {place!r} in {Path.cwd()} or among the installed packages.") from error
    finally:
        sys.path.pop(0)


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
    for report in diagnosis.methods:
        if report.left_out:
            layers = " to ".join(dict.fromkeys((report.left_out[0], report.left_out[-1])))
            count = f"{len(report.left_out)} of {sum(diagnosis.norms.values())}"
            console.print(f"{report.name} leaves out {count} norm layers: {layers}", highlight=False, markup=False)
    refused = [report for report in diagnosis.methods if report.refusal is not None]
    for report in refused:
        console.print(f"{report.name} refuses. {report.refusal}", highlight=False, markup=False)
