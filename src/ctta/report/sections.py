"""The contents of the page, as values for its templates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ctta._system.files import size
from ctta.bench.comparability import distinctions
from ctta.bench.compare import Row, notes, unlike_seeds
from ctta.bench.paired import Pairing, pair_rows
from ctta.bench.record import Record
from ctta.bench.spec import RunSpec
from ctta.bench.steps import StepFacts
from ctta.method_table import no_confidences
from ctta.protocol import protocol_of
from ctta.report.embed import Drawing
from ctta.report.groups import Group
from ctta.report.plots import MOST_ROWS, drawings

#: What the origin of data means, for readers of a report.
_ORIGINS = {
    "published": "published: equal to the files of the authors",
    "generated": "generated: corrupted by ctta",
    "unverified": "unverified: no published digest to compare with",
}


class Figure(NamedTuple):
    """A drawing and its caption.

    Args:
        drawing: The drawing.
        caption: The caption.
    """

    drawing: Drawing
    caption: str


@dataclass(frozen=True)
class RunFacts:
    """What the page shows about one run.

    Args:
        label: Method and settings.
        seed: Seed of the run.
        mean: Mean error in percent.
        command: The command that made it.
        tables: Facts of the run by heading.
    """

    label: str
    seed: int
    mean: float
    command: str
    tables: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Section:
    """What the page shows about a group of comparable runs.

    Args:
        id: Anchor of the section.
        heading: Its heading.
        facts: What the runs have in common.
        domains: Names of the domains.
        rows: The rows of the table.
        cells: The error of each row in each domain.
        best: The lowest error of each domain; empty if there is nothing to compare.
        best_mean: The lowest mean.
        memory: Whether any row has a known peak memory.
        spread: Whether any row has several seeds.
        unlike_seeds: The sets of seeds of the rows, if they differ.
        notes: Notes about the rows.
        against: Label of the best row, which the others are paired with; None if there is nothing to pair.
        differences: The paired difference of each row, with its standard error, by label.
        unpaired: Why a row has no difference, by label.
        no_confidences: For methods whose softmax is not a confidence, what their logits are.
        with_source: Whether any run was given source data.
        curves: How many rows the curves show, if not all.
        unlogged: Labels of rows with a run that has no step log.
        figures: Drawings of the group.
        runs: The runs.
    """

    id: str
    heading: str
    facts: Mapping[str, object]
    domains: Sequence[str]
    rows: Sequence[Row]
    cells: Sequence[Sequence[str]]
    best: Sequence[str]
    best_mean: str
    memory: bool
    spread: bool
    unlike_seeds: Sequence[str]
    notes: Sequence[str]
    against: str | None
    differences: Mapping[str, str]
    unpaired: Mapping[str, str]
    no_confidences: Mapping[str, str]
    with_source: bool
    curves: int | None
    unlogged: Sequence[str]
    figures: Sequence[Figure]
    runs: Sequence[RunFacts]


def sections_of(groups: Sequence[Group]) -> list[Section]:
    """Describe groups of runs for the page.

    Args:
        groups: Groups of comparable runs.
    """
    named = zip(groups, _headings(groups), strict=True)
    return [_section(number, group, heading) for number, (group, heading) in enumerate(named, start=1)]


def _section(number: int, group: Group, heading: str) -> Section:
    domains = list(group.rows[0].errors)
    pairing = _pairing(group)
    cells = [[row.errors.get(domain, float("nan")) for domain in domains] for row in group.rows]
    return Section(
        id=f"group-{number}",
        heading=heading,
        facts=_facts(group),
        domains=[domain.replace("_", " ") for domain in domains],
        rows=group.rows,
        cells=[[f"{error:.1f}" for error in line] for line in cells],
        best=[_lowest(column) for column in zip(*cells, strict=True)],
        best_mean=_lowest([row.mean for row in group.rows], 2),
        memory=any(row.peak_memory is not None for row in group.rows),
        spread=any(row.spread is not None for row in group.rows),
        unlike_seeds=unlike_seeds(group.rows),
        notes=notes(group.rows),
        against=pairing.against if pairing else None,
        differences={found.label: str(found) for found in pairing.differences} if pairing else {},
        unpaired=pairing.unpaired if pairing else {},
        no_confidences=no_confidences(dict.fromkeys(record.spec.method for record in group.records)),
        with_source=any(not record.source_free for record in group.records),
        curves=MOST_ROWS if len(group.rows) > MOST_ROWS else None,
        unlogged=sorted({row.label for row in group.rows if any(r.address not in group.logs for r in row.records)}),
        figures=[Figure(drawing, caption) for drawing, caption in drawings(group, f"g{number}-")],
        runs=[_run(row, record) for row in group.rows for record in row.records],
    )


def _pairing(group: Group) -> Pairing | None:
    """The differences of all rows from the best one; None if no row can be paired with it."""

    def steps_of(record: Record) -> Sequence[StepFacts] | None:
        return group.logs[record.address].steps if record.address in group.logs else None

    pairing = pair_rows(group.rows, steps_of, strict=False)
    return pairing if pairing.differences else None


def _headings(groups: Sequence[Group]) -> list[str]:
    """A heading per group; headings that would be equal also name what differs."""
    plain = [_heading(group.records[0]) for group in groups]
    found = list(plain)
    for heading in dict.fromkeys(plain):
        indices = [index for index, other in enumerate(plain) if other == heading]
        for index, facts in zip(indices, distinctions([groups[index].spec for index in indices]), strict=True):
            found[index] += "".join(f", {name.replace('.', ' ')} {value}" for name, value in facts.items())
    return found


def _heading(record: Record) -> str:
    spec = record.spec
    times, origin = spec.protocol.get("times"), spec.data.get("origin")
    parts = [
        f"{record.data_title or spec.data_name}" + (f" ({origin})" if origin else ""),
        spec.model_name,
        spec.protocol_name,
        *_changed_options(spec),
        times and f"{times} round{'s' if times != 1 else ''}",
        not spec.learn and "without learning",
        spec.severity and f"severity {spec.severity}",
        _amount(record),
        f"batches of {spec.batch_size}",
    ]
    return ", ".join(str(part) for part in parts if part)


def _amount(record: Record) -> str:
    """How many domains and images the stream has."""
    most, domains = record.spec.images, len(record.spec.corruptions)
    if domains > 1 and record.images == most:
        # The number of images was that of the whole stream, not of each domain.
        return f"{most} images"
    return f"{domains} domain{'s' if domains != 1 else ''}" + (", all images" if most is None else f" of {most} images")


def _changed_options(spec: RunSpec) -> list[str]:
    """The options of the protocol that differ from their defaults."""
    options, protocol = spec.protocol.get("options"), protocol_of(spec.protocol)
    usual = {} if protocol is None else protocol.options
    found = options if isinstance(options, Mapping) else {}
    return [f"{name} {value}" for name, value in found.items() if usual.get(name) != value]


def _facts(group: Group) -> dict[str, object]:
    """What the runs of a group have in common, and the machines they ran on."""
    spec = group.spec
    machines = dict.fromkeys(_machine(record.environment) for record in group.records)
    first = group.records[0]
    return {
        "data": {name: value for name, value in spec.data.items() if name != "corruption_seed"}
        | ({"name": first.data_title} if first.data_title else {})
        | ({"origin": _ORIGINS[origin]} if (origin := str(spec.data.get("origin"))) in _ORIGINS else {}),
        **({"classes": ", ".join(first.class_names)} if first.class_names else {}),
        "model": spec.model,
        "protocol": spec.protocol,
        **_severity(spec),
        **_rounds(group),
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


def _rounds(group: Group) -> dict[str, object]:
    """The error of each round by row, if the stream repeats."""
    lines = {row.label: row.rounds for row in group.rows if row.rounds}
    texts = [f"{label}: {' '.join(f'{error:.1f}' for error in rounds)}" for label, rounds in lines.items()]
    return {"error per round": "; ".join(texts)} if texts else {}


def _machine(environment: Mapping[str, object]) -> str:
    return plain({name: environment.get(name) for name in ("device", "threads", "cores", "system", "torch")})


def _run(row: Row, record: Record) -> RunFacts:
    elsewhere = {"spec", "address", "command", "settings", "environment", "errors", "mean", "counts"}
    plumbing = {"format", "complete", "steps"}
    outcome = {name: value for name, value in record.to_json().items() if name not in elsewhere | plumbing}
    memory = None if record.peak_memory is None else size(record.peak_memory)
    return RunFacts(
        label=row.label,
        seed=record.spec.seed,
        mean=record.mean,
        command=record.command,
        tables={
            "settings": record.settings,
            "specification": {"address": record.address} | record.spec.to_json(),
            "environment": record.environment,
            "outcome": outcome | {"peak_memory": memory},
        },
    )


def _lowest(values: Sequence[float], digits: int = 1) -> str:
    known = [value for value in values if not math.isnan(value)]
    # A single row has nothing to be compared with.
    return f"{min(known):.{digits}f}" if len(values) > 1 and known else ""


def plain(value: object) -> str:
    """A value of a record in readable form.

    Args:
        value: Anything that JSON can hold.
    """
    if isinstance(value, Mapping):
        named = [str(value["name"])] if "name" in value else []
        rest = {name: inner for name, inner in value.items() if name != "name"}
        return "; ".join(named + [f"{name}: {plain(inner)}" for name, inner in rest.items()])
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(inner) for inner in value)
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else str(value)
