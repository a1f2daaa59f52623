"""Write run records as one HTML file that has no scripts and refers to nothing outside itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ctta._system.files import size, write_atomically
from ctta.bench.comparability import distinctions
from ctta.bench.compare import Row, any_after, unlike_seeds
from ctta.bench.record import Record
from ctta.bench.spec import RunSpec
from ctta.errors import BadData, MissingExtra
from ctta.method_table import AFTER_NOTE
from ctta.protocol import protocol_of
from ctta.report.embed import Drawing, embed
from ctta.report.groups import Group, read_groups
from ctta.report.plots import MOST_ROWS, drawings
from ctta.version import __version__

TITLE = "Continual test-time adaptation"


class Figure(NamedTuple):
    """A drawing and its caption."""

    drawing: Drawing
    caption: str


def require_extras() -> None:
    """Raise MissingExtra if a package that the report needs is not installed."""
    try:
        import jinja2  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("jinja2", "demo") from error


def write_report(folders: Sequence[Path], out: Path, *, title: str = TITLE) -> int:
    """Write a page of all runs below some folders; the file is replaced atomically.

    Args:
        folders: Folders of run records, or single records; every ``figures/*.svg`` below them is embedded too.
        out: The page.
        title: Title of the page.

    Returns:
        The number of runs.
    """
    require_extras()
    groups = read_groups(folders)
    write_atomically(out, page(groups, list(_found_figures(folders)), title=title).encode())
    return sum(len(group.records) for group in groups)


def page(groups: Sequence[Group], figures: Sequence[Figure] = (), *, title: str = TITLE) -> str:
    """Render a page; the same input gives the same text.

    Args:
        groups: Groups of comparable runs.
        figures: Drawings made elsewhere, shown after the groups.
        title: Title of the page.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        # Records may come from anyone: everything in them is shown as text.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plain=_plain, number=_number)
    named = zip(groups, _headings(groups), strict=True)
    sections = [_section(number, group, heading) for number, (group, heading) in enumerate(named, start=1)]
    return environment.get_template("page.html").render(
        title=title,
        version=__version__,
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        sections=sections,
        figures=figures,
        runs=sum(len(group.records) for group in groups),
        markup=Markup,
    )


def _found_figures(folders: Sequence[Path]) -> Iterator[Figure]:
    """Every figures/*.svg below some folders, with its own title."""
    inside = {path.resolve(): path for folder in folders if folder.is_dir() for path in folder.rglob("figures/*.svg")}
    for number, path in enumerate(sorted(inside.values()), start=1):
        try:
            drawing = embed(path.read_bytes(), f"p{number}-")
        except BadData as error:
            raise BadData(f"{path}: {error}") from error
        yield Figure(drawing._replace(title=drawing.title or path.stem.replace("_", " ")), "")


def _section(number: int, group: Group, heading: str) -> dict[str, Any]:
    """Values of the template for a group."""
    domains = list(group.rows[0].errors)
    cells = [[row.errors.get(domain, float("nan")) for domain in domains] for row in group.rows]
    return {
        "id": f"group-{number}",
        "heading": heading,
        "facts": _facts(group),
        "domains": [domain.replace("_", " ") for domain in domains],
        "rows": group.rows,
        "cells": [[f"{error:.1f}" for error in line] for line in cells],
        "best": [_lowest(column) for column in zip(*cells, strict=True)],
        "best_mean": _lowest([row.mean for row in group.rows], 2),
        "memory": any(row.peak_memory is not None for row in group.rows),
        "spread": any(row.spread is not None for row in group.rows),
        "unlike_seeds": unlike_seeds(group.rows),
        "after": AFTER_NOTE if any_after(group.rows) else None,
        "with_source": any(not record.source_free for record in group.records),
        "curves": MOST_ROWS if len(group.rows) > MOST_ROWS else None,
        "unlogged": sorted({row.label for row in group.rows if any(r.address not in group.logs for r in row.records)}),
        "figures": [Figure(drawing, caption) for drawing, caption in drawings(group, f"g{number}-")],
        "runs": [_run(row, record) for row in group.rows for record in row.records],
    }


def _headings(groups: Sequence[Group]) -> list[str]:
    """A heading per group; headings that would be equal also name what differs."""
    plain = [_heading(group.spec) for group in groups]
    found = list(plain)
    for heading in dict.fromkeys(plain):
        indices = [index for index, other in enumerate(plain) if other == heading]
        for index, facts in zip(indices, distinctions([groups[index].spec for index in indices]), strict=True):
            found[index] += "".join(f", {name.replace('.', ' ')} {value}" for name, value in facts.items())
    return found


def _heading(spec: RunSpec) -> str:
    times, domains = spec.protocol.get("times"), len(spec.corruptions)
    parts = [
        f"{spec.data_name} ({spec.data['origin']})",
        spec.model_name,
        spec.protocol_name,
        times and f"{times} round{'s' if times != 1 else ''}",
        not spec.learn and "without learning",
        spec.severity and f"severity {spec.severity}",
        f"{domains} domain{'s' if domains != 1 else ''}"
        + (", all images" if spec.images is None else f" of {spec.images} images"),
        f"batches of {spec.batch_size}",
    ]
    return ", ".join(str(part) for part in parts if part)


def _facts(group: Group) -> dict[str, object]:
    """What the runs of a group have in common, and the machines they ran on."""
    spec = group.spec
    machines = dict.fromkeys(_machine(record.environment) for record in group.records)
    first = group.records[0]
    return {
        "data": {name: value for name, value in spec.data.items() if name != "corruption_seed"},
        "model": spec.model,
        "protocol": spec.protocol,
        **_severity(spec),
        "metric": f"{first.metric}; {first.direction}",
        "scored": first.scored,
        "machine": list(machines),
    }


def _severity(spec: RunSpec) -> dict[str, object]:
    protocol = protocol_of(spec.protocol)
    if protocol is not None and protocol.severity_text is not None:
        return {"severity": protocol.severity_text}
    # Clean images, and domains that are not corruptions, have no severity.
    return {} if spec.severity is None else {"severity": spec.severity}


def _machine(environment: Mapping[str, object]) -> str:
    return _plain({name: environment.get(name) for name in ("device", "threads", "cores", "system", "torch")})


def _run(row: Row, record: Record) -> dict[str, Any]:
    """Values of the template for a run."""
    elsewhere = {"spec", "address", "command", "settings", "environment", "errors", "mean", "counts"}
    plumbing = {"format", "complete", "steps"}
    outcome = {name: value for name, value in record.to_json().items() if name not in elsewhere | plumbing}
    memory = None if record.peak_memory is None else size(record.peak_memory)
    return {
        "label": row.label,
        "seed": record.spec.seed,
        "mean": record.mean,
        "command": record.command,
        "tables": {
            "settings": record.settings,
            "specification": {"address": record.address} | record.spec.to_json(),
            "environment": record.environment,
            "outcome": outcome | {"peak_memory": memory},
        },
    }


def _lowest(values: Sequence[float], digits: int = 1) -> str:
    known = [value for value in values if not math.isnan(value)]
    # A single row has nothing to be compared with.
    return f"{min(known):.{digits}f}" if len(values) > 1 and known else ""


def _plain(value: Any) -> str:
    """A value of a record in readable form."""
    if isinstance(value, Mapping):
        named = [str(value["name"])] if "name" in value else []
        rest = {name: inner for name, inner in value.items() if name != "name"}
        return "; ".join(named + [f"{name}: {_plain(inner)}" for name, inner in rest.items()])
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(inner) for inner in value)
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else str(value)


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
