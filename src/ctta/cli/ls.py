"""ctta ls: what there is."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any

import typer


class What(str, Enum):
    """Kinds of things that have names."""

    methods = "methods"
    streams = "streams"
    models = "models"
    experiments = "experiments"


def ls(
    what: Annotated[What, typer.Argument(help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List methods, streams, models or experiments."""
    rows = {What.methods: _methods, What.streams: _streams, What.models: _models, What.experiments: _experiments}[
        what
    ]()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from ctta.cli.tables import echo_rows  # noqa: PLC0415 - ctta --help takes no rich tables

    echo_rows(rows)


def _methods() -> list[dict[str, Any]]:
    from ctta.registry import methods  # noqa: PLC0415 - ctta --help takes no torch

    return [
        {
            "method": name,
            "learns": cls.trains if cls.learns else "nothing",
            "source-free": "yes" if cls.source_free else "no",
            "passes": f"{cls.passes[0]} forward, {cls.passes[1]} backward",
            "summary": _first_sentence(cls.__doc__),
        }
        for name, cls in methods().items()
    ]


def _streams() -> list[dict[str, Any]]:
    from ctta.bench.sources import STREAMS  # noqa: PLC0415
    from ctta.streams.corruptions import CORRUPTIONS, HELD_OUT  # noqa: PLC0415

    rows = [{"stream": name, "kind": "data", "use": f"ctta run METHOD {name}"} for name in STREAMS]
    rows += [{"stream": name, "kind": "corruption", "use": "one of the fifteen"} for name in CORRUPTIONS]
    rows += [{"stream": name, "kind": "corruption", "use": "held out for tuning"} for name in HELD_OUT]
    return rows


def _models() -> list[dict[str, Any]]:
    from ctta.nets.models import MODELS  # noqa: PLC0415

    return [
        {
            "model": m.name,
            "classes": m.num_classes,
            "pixels": m.input_size,
            "mean": "none" if m.mean is None else ", ".join(f"{v:.3g}" for v in m.mean),
            "std": "none" if m.std is None else ", ".join(f"{v:.3g}" for v in m.std),
            "file": m.file,
            "source": m.source,
        }
        for m in MODELS.values()
    ]


def _experiments() -> list[dict[str, Any]]:
    from ctta.cli.run import parse_seeds  # noqa: PLC0415
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


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())
