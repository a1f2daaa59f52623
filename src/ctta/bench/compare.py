"""Records side by side: like with like, seeds of one run as mean and spread."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ctta.bench.record import other_version
from ctta.bench.spec import COMPARABLE
from ctta.bench.unlike import comparable, distinctions, unsaid
from ctta.bench.usual import recipe
from ctta.errors import CttaError
from ctta.registry import methods

#: Stands for the error of a domain that a row does not have.
NONE = "–"


class UnlikeRuns(CttaError):
    """Runs whose numbers cannot stand in one table."""


@dataclass(frozen=True)
class Row:
    """One method with its settings: errors per domain and their mean, over seeds."""

    label: str
    seeds: tuple[int, ...]
    errors: dict[str, float]
    mean: float
    spread: float | None  # standard deviation of the mean over seeds
    images_per_second: float


def rows(records: Sequence[dict[str, Any]], *, force: bool = False) -> list[Row]:
    """A row per method and settings; unlike runs are refused, or if forced have rows that name what differs."""
    if (unlike := differences(records)) and not force:
        fact, values = next(iter(unlike.items()))
        raise UnlikeRuns(
            f"These runs differ in {fact}: {'; '.join(values)}. Their errors cannot be compared. "
            "Choose like runs, or use --force, which names in each row what differs."
        )
    groups: dict[tuple[str, str | None, str], dict[int, dict[str, Any]]] = {}
    for record, facts in zip(records, distinctions([record["spec"] for record in records]), strict=True):
        spec = record["spec"]
        name = label(record) + (f" [{', '.join(f'{k}={v}' for k, v in facts.items())}]" if facts else "")
        # What a label shortens still keeps rows apart.
        whole = json.dumps([comparable(spec, fact) for fact in COMPARABLE], sort_keys=True)
        groups.setdefault((name, spec.get("source_data"), whole), {})[spec["seed"]] = record
    names = [name for name, _, _ in groups]
    return [
        _row(name if names.count(name) == 1 else f"{name} source {str(source)[:8]}", list(group.values()))
        for (name, source, _), group in groups.items()
    ]


def differences(records: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The facts that make runs unlike, each with its values."""
    found = {}
    for fact in COMPARABLE:
        values: dict[str, str] = {}
        for record in records:
            value = json.dumps(comparable(record["spec"], fact), sort_keys=True)
            values.setdefault(unsaid(fact) if value == "null" else value, label(record))
        if len(values) > 1:
            found[fact] = [f"{value} in {name}" for value, name in values.items()]
    return found


def unlike_seeds(found: Sequence[Row]) -> list[str]:
    """The sets of seeds that rows are means over, each with a row that has it; none where all have the same."""
    sets: dict[tuple[int, ...], list[str]] = {}
    for row in found:
        sets.setdefault(tuple(sorted(row.seeds)), []).append(row.label)
    if len(sets) < 2:
        return []
    return [
        f"{', '.join(map(str, seeds))} in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for seeds, names in sets.items()
    ]


def other_versions(records: Sequence[dict[str, Any]]) -> list[str]:
    """The other major versions of ctta or torch that made records, each with a row that it made."""
    found: dict[str, list[str]] = {}
    for record in records:
        if (made := other_version(record)) is not None:
            found.setdefault(made, []).append(label(record))
    return [
        f"{made} in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for made, names in found.items()
    ]


def label(record: dict[str, Any]) -> str:
    """The method as the paper writes it (^s: with source data), and the settings that are not its recipe's."""
    spec = record["spec"]
    name = spec["method"] if record["source_free"] else f"{spec['method']}^s"
    return " ".join([name, *(f"{k}={v}" for k, v in sorted(own_settings(record).items()))])


def own_settings(record: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run that are not its recipe's."""
    spec = record["spec"]
    known = recipe(methods()[spec["method"]], spec["data"]["name"]) if spec["method"] in methods() else {}
    return {k: v for k, v in spec["settings"].items() if known.get(k, _Absent) != v}


def text_table(found: Sequence[Row], form: str = "text", *, mark: bool = True) -> str:
    """The rows as "text", "markdown", "latex" or "csv"; the lowest error of a column is bold, or has a star."""
    domains = list(dict.fromkeys(domain for row in found for domain in row.errors))
    head = ["method", *domains, "mean", "seeds", "images/s"]
    body = [[r.label, *_numbers(r, domains), _mean(r), str(len(r.seeds)), f"{r.images_per_second:.0f}"] for r in found]
    best = [min(_value(line[i]) for line in body) for i in range(1, len(domains) + 2)]
    if form == "csv":
        file = io.StringIO()
        plain = [["" if cell == NONE else cell for cell in line] for line in body]
        csv.writer(file, lineterminator="\n").writerows([head, *plain])
        return file.getvalue()
    bold = {"markdown": "**{}**", "latex": r"\textbf{{{}}}", "text": "{}*"}[form]
    for line in body if len(body) > 1 and mark else ():
        for i, lowest in enumerate(best, start=1):
            if _value(line[i]) == lowest:
                line[i] = bold.format(line[i])
    if form == "markdown":
        rule = "|" + "---|" * len(head)
        return (
            "\n".join([_joined(head, "| ", " | ", " |"), rule, *(_joined(b, "| ", " | ", " |") for b in body)]) + "\n"
        )
    if form == "latex":
        lines = [
            " & ".join(cell.replace("_", r"\_").replace("^s", r"$^s$") for cell in line) + r" \\"
            for line in [head, *body]
        ]
        columns = "l" + "r" * (len(head) - 1)
        return "\n".join([rf"\begin{{tabular}}{{{columns}}}", lines[0], r"\hline", *lines[1:], r"\end{tabular}"]) + "\n"
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    return (
        "\n".join(
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in [head, *body]
        )
        + "\n"
    )


class _Absent:
    """Stands for a setting that a recipe does not have."""


def _row(name: str, group: Sequence[dict[str, Any]]) -> Row:
    means = [record["mean"] for record in group]
    domains = group[0]["errors"]
    return Row(
        label=name,
        seeds=tuple(record["spec"]["seed"] for record in group),
        errors={d: statistics.fmean(r["errors"].get(d, float("nan")) for r in group) for d in domains},
        mean=statistics.fmean(means),
        spread=statistics.stdev(means) if len(means) > 1 else None,
        images_per_second=statistics.fmean(record["images_per_second"] for record in group),
    )


def _numbers(row: Row, domains: Sequence[str]) -> list[str]:
    return [f"{row.errors[domain]:.1f}" if domain in row.errors else NONE for domain in domains]


def _value(cell: str) -> float:
    return math.inf if cell == NONE else float(cell.split(" ", maxsplit=1)[0])


def _mean(row: Row) -> str:
    return f"{row.mean:.2f}" if row.spread is None else f"{row.mean:.2f} ± {row.spread:.2f}"


def _joined(cells: Sequence[str], begin: str, between: str, end: str) -> str:
    return begin + between.join(cells) + end
