"""ctta doctor: show what each method would do with the user's model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctta._system.imports import user_code
from ctta._system.results import keep_for_results, write_result
from ctta.cli import options
from ctta.cli.names import check_names
from ctta.cli.options import parse_names
from ctta.method_table import AFTER_NOTE, after_mark

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from ctta.doctor import Diagnosis


def doctor(
    target: Annotated[
        str,
        typer.Argument(
            help="A model, or a function that builds one, as package.module:name or file.py:name; or any name that "
            "ctta run --model accepts."
        ),
    ],
    weights: options.Weights = None,
    methods: options.Methods = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also time the recommended adapter, and take one step of every method, on random images of this "
            "height and width.",
        ),
    ] = None,
    channels: Annotated[
        int | None,
        typer.Option(
            min=1, help="Channels of those images.", show_default="those of the mean, or of the first convolution"
        ),
    ] = None,
    device: options.Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recommend an adapter for a model, and show what each method would do with it.

    The exit code is 1 if no method can adapt the model.
    """
    names = parse_names(methods or ())
    check_names(names, None)
    from ctta._system.device import choose_device  # noqa: PLC0415 - help and usage errors must not import torch
    from ctta.doctor import examine  # noqa: PLC0415
    from ctta.registry import get_method  # noqa: PLC0415

    if as_json:
        keep_for_results()
    place = choose_device(device)
    model = load_model(target, weights)
    chosen = {name: get_method(name) for name in names} or None
    # Moving, copying and running the model execute the user's code.
    with user_code(f"Examining {target}"):
        diagnosis = examine(model.to(place), image_size=image_size, channels=channels, among=chosen)
    if as_json:
        write_result(json.dumps(dataclasses.asdict(diagnosis), indent=2))
    else:
        _print(diagnosis)
    if all(report.refusal is not None for report in diagnosis.methods):
        raise typer.Exit(1)


def load_model(target: str, weights: Path | None = None) -> nn.Module:
    """Load the model to examine.

    Args:
        target: Any name that ``ctta run --model`` accepts; or a module or file with only one model.
        weights: A weights file.
    """
    from ctta.nets import by_name  # noqa: PLC0415

    if weights is None and by_name.is_own(target):
        return by_name.own_model(target)
    return by_name.load_model(target, weights).classifier


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
    for warning in diagnosis.warnings:
        console.print(f"warning: {warning}\n", highlight=False, markup=False)
    _print_recommendation(console, diagnosis)
    table = Table("method", "trains", "smallest batch", "memory", "passes", "source data", box=None, pad_edge=False)
    for report in diagnosis.methods:
        if report.refusal is None:
            forward, backward = report.passes
            table.add_row(
                report.name + after_mark(report.name),
                f"{report.trained:,}",
                str(report.smallest_batch),
                f"{report.memory / 1e6:.1f} MB",
                f"{forward} forward, {backward} backward",
                "not needed" if report.source_free else "needed",
            )
    console.print(table)
    if any(after_mark(report.name) for report in diagnosis.methods if report.refusal is None):
        console.print(AFTER_NOTE, highlight=False)
    if any(report.trained > diagnosis.parameters for report in diagnosis.methods):
        console.print("trains: parameters, with those of the projection that a method adds", highlight=False)
    for report in diagnosis.methods:
        if report.left_out:
            layers = " to ".join(dict.fromkeys((report.left_out[0], report.left_out[-1])))
            count = f"{len(report.left_out)} of {sum(diagnosis.norms.values())}"
            console.print(f"{report.name} leaves out {count} norm layers: {layers}", highlight=False, markup=False)
        if report.trained_later:
            console.print(
                f"{report.name} trains {report.trained_later[0]}, which runs after them: name the modules of the last "
                'stage, such as last_stage="layer4".',
                highlight=False,
                markup=False,
            )
    refusals: dict[str, list[str]] = {}
    for report in diagnosis.methods:
        if report.refusal is not None:
            refusals.setdefault(report.refusal, []).append(report.name)
    for refusal, names in refusals.items():
        console.print(f"{', '.join(names)} cannot adapt it: {refusal}", highlight=False, markup=False)


def _print_recommendation(console: Console, diagnosis: Diagnosis) -> None:
    advice = diagnosis.recommended
    if advice is None:
        console.print(f"recommended: nothing. {diagnosis.not_recommended}\n", highlight=False, markup=False)
        return
    arguments = "".join(f", {name}={value!r}" for name, value in advice.arguments.items())
    method = "" if advice.method == "trio" else f', method="{advice.method}"'
    console.print(f"recommended: ctta.adapt(model{method}{arguments})", highlight=False, markup=False)
    for reason in (*advice.reasons.values(), *diagnosis.computes):
        console.print(f"  {reason}", highlight=False, markup=False)
    if diagnosis.seconds:
        steps = ", ".join(f"{1000 * taken:.0f} ms for {size}" for size, taken in diagnosis.seconds.items())
        console.print(f"  A step on this machine without the guard, by images in the batch: {steps}.", highlight=False)
    console.print()
