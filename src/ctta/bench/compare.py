"""Records side by side: like with like, seeds of one run as mean and spread."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ctta.bench.spec import COMPARABLE
from ctta.bench.usual import recipe
from ctta.errors import CttaError
from ctta.registry import methods


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
    """A row per method and settings; refuses unlike runs, naming the fact that differs, unless forced."""
    if (unlike := differences(records)) and not force:
        fact, values = next(iter(unlike.items()))
        raise UnlikeRuns(
            f"These runs differ in {fact}: {'; '.join(values)}. Their errors cannot be compared. "
            "Choose like runs, or use --force, which marks the table."
        )
    groups: dict[tuple[str, str | None], dict[int, dict[str, Any]]] = {}
    for record in records:
        key = (label(record), record["spec"].get("source_data"))
        groups.setdefault(key, {})[record["spec"]["seed"]] = record
    names = [name for name, _ in groups]
    return [
        _row(name if names.count(name) == 1 else f"{name} source {str(source)[:8]}", list(group.values()))
        for (name, source), group in groups.items()
    ]


def differences(records: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The facts that make runs unlike, each with its values."""
    found = {}
    for fact in COMPARABLE:
        values: dict[str, str] = {}
        for record in records:
            value = json.dumps(_comparable(record["spec"], fact), sort_keys=True)
            values.setdefault("all" if value == "null" else value, label(record))
        if len(values) > 1:
            found[fact] = [f"{value} in {name}" for value, name in values.items()]
    return found


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
    domains = list(found[0].errors)
    head = ["method", *domains, "mean", "seeds", "images/s"]
    body = [[r.label, *_numbers(r, domains), _mean(r), str(len(r.seeds)), f"{r.images_per_second:.0f}"] for r in found]
    best = [min(float(line[i].split(" ")[0]) for line in body) for i in range(1, len(domains) + 2)]
    if form == "csv":
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows([head, *body])
        return file.getvalue()
    bold = {"markdown": "**{}**", "latex": r"\textbf{{{}}}", "text": "{}*"}[form]
    for line in body if len(body) > 1 and mark else ():
        for i, lowest in enumerate(best, start=1):
            if float(line[i].split(" ")[0]) == lowest:
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


def _comparable(spec: dict[str, Any], fact: str) -> Any:
    value = spec[fact]
    if fact == "data":
        # Another seed draws other noise on the same images: that is a repetition, not another benchmark.
        return {k: v for k, v in value.items() if k != "corruption_seed"}
    # Random orders show the same domains.
    return sorted(value) if fact == "corruptions" and spec["protocol"]["name"] == "random-order" else value


def _numbers(row: Row, domains: Sequence[str]) -> list[str]:
    return [f"{row.errors.get(domain, float('nan')):.1f}" for domain in domains]


def _mean(row: Row) -> str:
    return f"{row.mean:.2f}" if row.spread is None else f"{row.mean:.2f} ± {row.spread:.2f}"


def _joined(cells: Sequence[str], begin: str, between: str, end: str) -> str:
    return begin + between.join(cells) + end
