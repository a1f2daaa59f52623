"""The page: records in, one HTML file out, without a script and without a reference to anything outside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ctta.bench.compare import unlike_seeds
from ctta.bench.plots import require_matplotlib
from ctta.bench.report.embed import Drawing, embed
from ctta.bench.report.figures import MOST_ROWS, pictures
from ctta.bench.report.runs import Group, Line, Run, read_groups
from ctta.bench.unlike import distinctions
from ctta.errors import BadData, MissingExtra
from ctta.files import size, write_atomically
from ctta.version import __version__

TITLE = "Continual test-time adaptation"


class Figure(NamedTuple):
    """A drawing and the sentence below it."""

    drawing: Drawing
    caption: str


def require_extras() -> None:
    """Raise MissingExtra where a report cannot be made."""
    require_matplotlib()
    try:
        import jinja2  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("jinja2", "demo") from error


def write_report(folders: Sequence[Path], out: Path, *, title: str = TITLE) -> int:
    """Write the page of every run below some folders, atomically, and give the number of runs."""
    require_extras()
    groups = read_groups(folders)
    write_atomically(out, page(groups, list(_found_figures(folders)), title=title).encode())
    return sum(len(group.runs) for group in groups)


def page(groups: Sequence[Group], figures: Sequence[Figure] = (), *, title: str = TITLE) -> str:
    """The page of groups of runs, and of figures made elsewhere; the same input gives the same page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        # Records are anyone's: whatever they say is shown as text.
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
        runs=sum(len(group.runs) for group in groups),
        markup=Markup,
    )


def _found_figures(folders: Sequence[Path]) -> Iterator[Figure]:
    """Every figures/*.svg below some folders, under its own title."""
    inside = {path.resolve(): path for folder in folders if folder.is_dir() for path in folder.rglob("figures/*.svg")}
    for number, path in enumerate(sorted(inside.values()), start=1):
        try:
            drawing = embed(path.read_bytes(), f"p{number}-")
        except BadData as error:
            raise BadData(f"{path}: {error}") from error
        yield Figure(drawing._replace(title=drawing.title or path.stem.replace("_", " ")), "")


def _section(number: int, group: Group, heading: str) -> dict[str, Any]:
    """What the template says about a group."""
    drawn = pictures(group)
    domains = list(group.lines[0].row.errors)
    cells = [[line.row.errors.get(domain, float("nan")) for domain in domains] for line in group.lines]
    return {
        "id": f"group-{number}",
        "heading": heading,
        "facts": _facts(group),
        "domains": [domain.replace("_", " ") for domain in domains],
        "lines": group.lines,
        "cells": [[f"{error:.1f}" for error in row] for row in cells],
        "best": [_lowest(column) for column in zip(*cells, strict=True)],
        "best_mean": _lowest([line.row.mean for line in group.lines], 2),
        "memory": any(line.peak_memory is not None for line in group.lines),
        "spread": any(line.row.spread is not None for line in group.lines),
        "unlike_seeds": unlike_seeds([line.row for line in group.lines]),
        "with_source": any(not run.record["source_free"] for run in group.runs),
        "curves": MOST_ROWS if len(group.lines) > MOST_ROWS else None,
        "unlogged": sorted({line.row.label for line in group.lines if any(run.log is None for run in line.runs)}),
        "figures": [
            Figure(embed(picture.svg, f"g{number}-{place}-"), picture.caption)
            for place, picture in enumerate(drawn, start=1)
        ],
        "runs": [_run(line, run) for line in group.lines for run in line.runs],
    }


def _headings(groups: Sequence[Group]) -> list[str]:
    """A heading per group; where two would be the same, with what differs."""
    usual = [_heading(group.spec) for group in groups]
    found = list(usual)
    for heading in dict.fromkeys(usual):
        places = [place for place, other in enumerate(usual) if other == heading]
        for place, facts in zip(places, distinctions([groups[place].spec for place in places]), strict=True):
            found[place] += "".join(f", {name.replace('.', ' ')} {value}" for name, value in facts.items())
    return found


def _heading(spec: dict[str, Any]) -> str:
    times, domains = spec["protocol"].get("times"), len(spec["corruptions"])
    parts = [
        f"{spec['data']['name']} ({spec['data']['origin']})",
        spec["model"]["name"],
        spec["protocol"]["name"],
        times and f"{times} round{'s' if times != 1 else ''}",
        not spec["learn"] and "without learning",
        spec["severity"] and f"severity {spec['severity']}",
        f"{domains} domain{'s' if domains != 1 else ''}"
        + (", all images" if spec["images"] is None else f" of {spec['images']} images"),
        f"batches of {spec['batch_size']}",
    ]
    return ", ".join(str(part) for part in parts if part)


def _facts(group: Group) -> dict[str, Any]:
    """What all runs of a group have in common, and the machines they ran on."""
    spec = group.spec
    machines = dict.fromkeys(_machine(run.record["environment"]) for run in group.runs)
    first = group.runs[0].record
    return {
        "data": {name: value for name, value in spec["data"].items() if name != "corruption_seed"},
        "model": spec["model"],
        "protocol": spec["protocol"],
        **_severity(spec),
        "metric": f"{first['metric']}; {first['direction']}",
        "scored": first["scored"],
        "machine": list(machines),
    }


def _severity(spec: dict[str, Any]) -> dict[str, Any]:
    if spec["protocol"]["name"] == "gradual":
        return {"severity": "rises and falls"}
    # Clean images and domains that are no corruptions have none.
    return {} if spec["severity"] is None else {"severity": spec["severity"]}


def _machine(environment: dict[str, Any]) -> str:
    return _plain({name: environment.get(name) for name in ("device", "threads", "cores", "system", "torch")})


def _run(line: Line, run: Run) -> dict[str, Any]:
    """What the template says about a run."""
    record = run.record
    elsewhere = {"spec", "address", "command", "settings", "environment", "errors", "mean", "counts"}
    plumbing = {"format", "complete", "steps"}
    outcome = {name: value for name, value in record.items() if name not in elsewhere | plumbing}
    memory = None if record["peak_memory"] is None else size(record["peak_memory"])
    return {
        "label": line.row.label,
        "seed": record["spec"]["seed"],
        "mean": record["mean"],
        "command": record["command"],
        "tables": {
            "settings": record["settings"],
            "specification": {"address": record["address"]} | record["spec"],
            "environment": record["environment"],
            "outcome": outcome | {"peak_memory": memory},
        },
    }


def _lowest(values: Sequence[float], digits: int = 1) -> str:
    known = [value for value in values if not math.isnan(value)]
    # Nothing to be lower than.
    return f"{min(known):.{digits}f}" if len(values) > 1 and known else ""


def _plain(value: Any) -> str:
    """A value of a record as people write it."""
    if isinstance(value, dict):
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
