"""ctta ls: list methods, streams, protocols, models and experiments."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ctta.errors import CttaError

if TYPE_CHECKING:
    from ctta.nets.models import Model

#: The rows of a list: values by the name of their column.
Rows = list[dict[str, object]]


class What(str, Enum):
    """The kinds of things that can be listed."""

    methods = "methods"
    streams = "streams"
    protocols = "protocols"
    models = "models"
    experiments = "experiments"


def ls(
    what: Annotated[What, typer.Argument(help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List methods, streams, protocols, models or experiments."""
    rows = {
        What.methods: _methods,
        What.streams: _streams,
        What.protocols: _protocols,
        What.models: _models,
        What.experiments: _experiments,
    }[what]()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from ctta.cli.tables import echo_rows  # noqa: PLC0415 - ctta --help takes no rich tables

    echo_rows(rows)


def _methods() -> Rows:
    from ctta.method_table import built_in, facts_of  # noqa: PLC0415
    from ctta.registry import BUILT_IN, METHODS  # noqa: PLC0415

    rows: Rows = []
    for entry in METHODS.entries():
        try:
            facts = built_in()[entry.name] if entry.origin == BUILT_IN else facts_of(entry.name, entry.load())
        except CttaError as error:
            shown = {
                "learns": "-",
                "source-free": "-",
                "passes": "-",
                "predicts": "-",
                "summary": f"{type(error).__name__}: {error}",
            }
        else:
            shown = {
                "learns": facts.learns,
                "source-free": "yes" if facts.source_free else "no",
                "passes": f"{facts.forward} forward, {facts.backward} backward",
                "predicts": "first" if facts.predicts_first else "after using the batch, or a part of it",
                "summary": facts.summary,
            }
        rows.append({"method": entry.name, "from": entry.origin, **shown})
    return rows


def _streams() -> Rows:
    from ctta.corruption_names import CORRUPTIONS, HELD_OUT  # noqa: PLC0415
    from ctta.datasets import DATASETS  # noqa: PLC0415
    from ctta.registry import BUILT_IN  # noqa: PLC0415

    rows: Rows = []
    for entry in DATASETS.entries():
        try:
            dataset = entry.load()
        except CttaError as error:
            shown = {"classes": "-", "batch size": "-", "use": f"{type(error).__name__}: {error}"}
        else:
            summary = f": {dataset.summary}" if dataset.summary else ""
            shown = {
                "classes": "those of the data" if dataset.classes is None else str(dataset.classes),
                "batch size": str(dataset.batch_size),
                "use": f"ctta run METHOD {entry.name}{summary}",
            }
        rows.append({"stream": entry.name, "kind": "data", "from": entry.origin, **shown})
    for names, use in ((CORRUPTIONS, "one of the fifteen"), (HELD_OUT, "held out for tuning")):
        facts = {"kind": "corruption", "from": BUILT_IN, "classes": "-", "batch size": "-", "use": use}
        rows += [{"stream": name, **facts} for name in names]
    return rows


def _protocols() -> Rows:
    from ctta.protocol import PROTOCOLS  # noqa: PLC0415

    rows: Rows = []
    for entry in PROTOCOLS.entries():
        try:
            protocol = entry.load()
        except CttaError as error:
            summary, options = f"{type(error).__name__}: {error}", "-"
        else:
            summary = protocol.summary
            options = ", ".join(f"{name}={value}" for name, value in protocol.options.items()) or "-"
        rows.append({"protocol": entry.name, "from": entry.origin, "options": options, "summary": summary})
    return rows


def _models() -> Rows:
    from ctta.nets.by_name import NAMES  # noqa: PLC0415
    from ctta.nets.models import Model  # noqa: PLC0415

    rows: Rows = []
    for entry in NAMES.entries():
        try:
            value = entry.load()
        except CttaError as error:
            shown = _model(None, f"{type(error).__name__}: {error}")
        else:
            shown = _model(value if isinstance(value, Model) else None, "its own code")
        rows.append({"model": entry.name, "from": entry.origin, **shown})
    return rows


def _model(model: Model | None, otherwise: str) -> dict[str, object]:
    """The columns of a model; a model that is not in the table has only a sentence."""
    if model is None:
        return {"classes": "-", "pixels": "-", "mean": "-", "std": "-", "file": "-", "source": otherwise}
    return {
        "classes": model.num_classes,
        "pixels": model.input_size,
        "mean": "none" if model.mean is None else ", ".join(f"{v:.3g}" for v in model.mean),
        "std": "none" if model.std is None else ", ".join(f"{v:.3g}" for v in model.std),
        "file": model.file,
        "source": model.source,
    }


def _experiments() -> Rows:
    from ctta.cli.options import parse_seeds  # noqa: PLC0415
    from ctta.paper import EXPERIMENTS  # noqa: PLC0415

    return [
        {
            "experiment": e.name,
            "what": e.title,
            "runs": len(e.cells(e.datasets[0])) * len(parse_seeds(e.seeds)),
            "figures": ", ".join(drawing.name for drawing in e.drawings) or "-",
            "use": f"ctta reproduce {e.name} {'DATASET' if len(e.datasets) > 1 else e.datasets[0]}",
        }
        for e in EXPERIMENTS.values()
    ]
