"""Records side by side: like with like, seeds of one run as mean and spread."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ctta.bench.defaults import recipe_named
from ctta.bench.escapes import latex_text, markdown_text, one_line
from ctta.bench.record import other_version
from ctta.bench.spec import COMPARABLE
from ctta.bench.unlike import comparable, distinctions, unsaid
from ctta.errors import UnlikeRuns

#: Stands for the error of a domain that a row does not have.
NONE = "–"


@dataclass(frozen=True)
class Row:
    """One method with its settings: errors per domain and their mean, over seeds.

    Args:
        label: Method and the settings that differ from its recipe.
        seeds: The seeds of the runs.
        errors: Error of each domain in percent.
        mean: Mean of the errors over domains.
        spread: Standard deviation of the mean over seeds; None with one seed.
        images_per_second: Mean speed.
        records: The records of the runs, one per seed.
    """

    label: str
    seeds: tuple[int, ...]
    errors: dict[str, float]
    mean: float
    spread: float | None
    images_per_second: float
    records: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def peak_memory(self) -> float | None:
        """Mean peak memory of the runs in bytes; None if it is unknown for one of them."""
        sizes = [record["peak_memory"] for record in self.records]
        return None if None in sizes else statistics.fmean(sizes)

    def to_json(self) -> dict[str, Any]:
        """The numbers of the row as plain values, without the records."""
        return {name: value for name, value in asdict(self).items() if name != "records"}


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
        # The label abbreviates these facts; the key must not.
        groups.setdefault((name, spec.get("source_data"), comparable_key(spec)), {})[spec["seed"]] = record
    names = [name for name, _, _ in groups]
    return [
        _row(name if names.count(name) == 1 else f"{name} source {str(source)[:8]}", list(group.values()))
        for (name, source, _), group in groups.items()
    ]


def comparable_key(spec: dict[str, Any]) -> str:
    """A text that is equal for two specifications if and only if their numbers can be compared.

    Args:
        spec: The specification of a run, as in its record.
    """
    return json.dumps([comparable(spec, fact) for fact in COMPARABLE], sort_keys=True)


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
    known = recipe_named(spec["method"], spec["data"]["name"])
    return {k: v for k, v in spec["settings"].items() if known.get(k, _Absent) != v}


def text_table(found: Sequence[Row], form: str = "text", *, mark: bool = True) -> str:
    """Write rows as a table; the lowest error of a column is bold, or has a star in plain text.

    Args:
        found: The rows.
        form: "text", "markdown", "latex" or "csv". Labels and domains are escaped for the form.
        mark: Whether to mark the lowest errors.
    """
    domains = list(dict.fromkeys(domain for row in found for domain in row.errors))
    head = ["method", *domains, "mean", "seeds", "images/s"]
    body = [[r.label, *_numbers(r, domains), _mean(r), str(len(r.seeds)), f"{r.images_per_second:.0f}"] for r in found]
    if form == "csv":
        file = io.StringIO()
        plain = [["" if cell == NONE else cell for cell in line] for line in body]
        csv.writer(file, lineterminator="\n").writerows([head, *plain])
        return file.getvalue()
    marked = _lowest(body, len(domains) + 1) if mark else set()
    escape, bold, write = _FORMS[form]
    lines = [
        [bold.format(escape(cell)) if (i, j) in marked else escape(cell) for j, cell in enumerate(line)]
        for i, line in enumerate([head, *body])
    ]
    return write(lines)


def _lowest(body: Sequence[Sequence[str]], columns: int) -> set[tuple[int, int]]:
    """The line and column of every lowest error; lines count from 1, below the head. One row has none."""
    if len(body) < 2:
        return set()
    best = {j: min(_value(line[j]) for line in body) for j in range(1, columns + 1)}
    return {(i, j) for i, line in enumerate(body, start=1) for j, lowest in best.items() if _value(line[j]) == lowest}


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
        records=tuple(group),
    )


def _numbers(row: Row, domains: Sequence[str]) -> list[str]:
    return [f"{row.errors[domain]:.1f}" if domain in row.errors else NONE for domain in domains]


def _value(cell: str) -> float:
    return math.inf if cell == NONE else float(cell.split(" ", maxsplit=1)[0])


def _mean(row: Row) -> str:
    return f"{row.mean:.2f}" if row.spread is None else f"{row.mean:.2f} ± {row.spread:.2f}"


def _as_markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body]) + "\n"


def _as_latex(lines: Sequence[Sequence[str]]) -> str:
    head, *body = [" & ".join(line) + r" \\" for line in lines]
    columns = "l" + "r" * (len(lines[0]) - 1)
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", head, r"\hline", *body, r"\end{tabular}"]) + "\n"


def _as_text(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    aligned = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    return "".join("  ".join(line) + "\n" for line in aligned)


#: How a form escapes a cell, marks the lowest error of a column, and writes lines.
_FORMS: dict[str, tuple[Callable[[str], str], str, Callable[[Sequence[Sequence[str]]], str]]] = {
    "text": (one_line, "{}*", _as_text),
    "markdown": (markdown_text, "**{}**", _as_markdown),
    "latex": (latex_text, r"\textbf{{{}}}", _as_latex),
}
