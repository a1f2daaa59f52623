"""Build a table from records: comparable runs only, with the mean and spread over seeds."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import asdict, dataclass, field

from ctta.bench.comparability import MUST_MATCH, comparable, comparable_key, distinctions, short_values
from ctta.bench.defaults import recipe_named
from ctta.bench.escapes import latex_text, markdown_text, one_line
from ctta.bench.record import Record, other_version
from ctta.bench.scores import SeedScores
from ctta.bench.spec import RunSpec
from ctta.errors import UnlikeRuns
from ctta.method_table import AFTER, AFTER_NOTE

#: Notes in tables about runs whose protocol resets the adapter.
RESET_NOTES = {
    "shift": "reset at every shift: the method is told where a domain begins",
    "batch": "reset before every batch: the method remembers nothing of the stream",
}

#: Printed in place of the error of a domain that a row lacks.
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
    records: tuple[Record, ...] = field(default=(), repr=False)

    @property
    def peak_memory(self) -> float | None:
        """Mean peak memory of the runs in bytes; None if it is unknown for any of them."""
        sizes = [record.peak_memory for record in self.records]
        known = [size for size in sizes if size is not None]
        return statistics.fmean(known) if len(known) == len(sizes) else None

    @property
    def rounds(self) -> list[float] | None:
        """Error of each round in percent, the mean over the runs; None if the stream does not repeat."""
        found = [record.rounds for record in self.records]
        known = [rounds for rounds in found if rounds is not None]
        if not known or len(known) < len(found):
            return None
        return [statistics.fmean(errors) for errors in zip(*known, strict=False)]

    def to_json(self) -> dict[str, object]:
        """The numbers of the row as a JSON object, without the records."""
        return {name: value for name, value in asdict(self).items() if name != "records"}


def rows(records: Sequence[Record], *, force: bool = False) -> list[Row]:
    """Build one row for each combination of method and settings.

    Args:
        records: The records.
        force: Whether to accept runs that cannot be compared; their rows then name what differs.

    Raises:
        UnlikeRuns: The runs cannot be compared.
    """
    if (different := differences(records)) and not force:
        said = ". They differ in ".join(f"{name}: {_first(values)}" for name, values in different.items())
        raise UnlikeRuns(
            f"These runs differ in {said}. Their errors cannot be compared. "
            "Use ctta report FOLDER, which makes a table of each group of like runs; or name the folders of like runs "
            "one by one, and give each benchmark an --out of its own; or use --force, which names in each row what "
            "differs."
        )
    groups: dict[tuple[str, str | None, str], list[Record]] = {}
    for record, facts in zip(records, distinctions([record.spec for record in records]), strict=True):
        spec = record.spec
        name = label(record) + (f" [{', '.join(f'{k}={v}' for k, v in facts.items())}]" if facts else "")
        # The label abbreviates what differs; the key must not.
        groups.setdefault((name, spec.source_data, comparable_key(spec)), []).append(record)
    names = [name for name, _, _ in groups]
    return [
        _row((name if names.count(name) == 1 else f"{name} source {str(source)[:8]}") + mark, part)
        for (name, source, _), group in groups.items()
        for mark, part in _by_code(group).items()
    ]


def _by_code(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Split runs with one label so that none hides another with the same seed, and mark what tells them apart."""
    unique = list({record.address: record for record in records}.values())
    parts: dict[str, list[Record]] = {}
    for mark in (lambda run: "", lambda run: f" code {str(run.spec.model.get('code'))[:8]}", _address_mark):
        parts = {}
        for record in unique:
            parts.setdefault(mark(record), []).append(record)
        if all(len({run.spec.seed for run in part}) == len(part) for part in parts.values()):
            break
    return parts


def _address_mark(record: Record) -> str:
    return f" ({record.address[:8]})"


def differences(records: Sequence[Record]) -> dict[str, list[str]]:
    """The fields that make runs incomparable, each with its values in short and a run that has each value.

    Args:
        records: The records.
    """
    labels = [label(record) for record in records]
    found = {}
    for name in MUST_MATCH:
        # The short values may coincide where the whole ones do not.
        whole = [json.dumps(comparable(record.spec, name), sort_keys=True) for record in records]
        examples = {value: whole.index(value) for value in dict.fromkeys(whole)}
        if len(examples) < 2:
            continue
        shown = short_values([record.spec for record in records], name)
        found[name] = [f"{shown[i]} in {_run_name(i, examples.values(), labels, records)}" for i in examples.values()]
    return found


def _run_name(index: int, among: Iterable[int], labels: Sequence[str], records: Sequence[Record]) -> str:
    """The label of a run, followed by the first digits of its address if another one has the same label."""
    alone = [labels[i] for i in among].count(labels[index]) == 1
    return labels[index] if alone else f"{labels[index]} ({records[index].address[:8]})"


def _first(values: Sequence[str], most: int = 4) -> str:
    more = f"; and {len(values) - most} more" if len(values) > most else ""
    return "; ".join(values[:most]) + more


def unlike_seeds(table: Sequence[Row]) -> list[str]:
    """The sets of seeds that rows are averaged over, each with an example row; empty if all rows share one set.

    Args:
        table: The rows of a table.
    """
    sets: dict[str, list[str]] = {}
    for row in table:
        sets.setdefault(", ".join(map(str, sorted(row.seeds))), []).append(row.label)
    return _with_examples(sets) if len(sets) > 1 else []


def other_versions(records: Sequence[Record]) -> list[str]:
    """The other major versions of ctta or torch that wrote some of the records, each with an example row.

    Args:
        records: The records.
    """
    found: dict[str, list[str]] = {}
    for record in records:
        if (wrote := other_version(record)) is not None:
            found.setdefault(wrote, []).append(label(record))
    return _with_examples(found)


def _with_examples(found: dict[str, list[str]]) -> list[str]:
    return [
        f"{what} in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for what, names in found.items()
    ]


def label(record: Record) -> str:
    """The method and settings of a record; see `label_of`.

    Args:
        record: The record.
    """
    return label_of(record.spec, source_free=record.source_free, predicts_first=record.predicts_first)


def table_order(record: Record) -> tuple[bool, bool, str, str]:
    """A key to sort records by: the source model first, then methods that do not learn, then the others by label.

    Args:
        record: The record of a run.
    """
    name = record.spec.method
    return name != "source", record.passes[1] > 0, name, label(record)


def label_of(spec: RunSpec, *, source_free: bool, predicts_first: bool = True) -> str:
    """The method as the paper writes it, and the settings that differ from its recipe.

    ^s marks a method that was given source data, † one that predicts after using the batch.

    Args:
        spec: The specification of a run.
        source_free: Whether the method was given no source data.
        predicts_first: Whether the method predicts before it uses anything from the batch.
    """
    name = f"{spec.method}{'' if source_free else '^s'}{'' if predicts_first else AFTER}"
    return " ".join([name, *(f"{k}={v}" for k, v in sorted(own_settings(spec).items()))])


def own_settings(spec: RunSpec) -> dict[str, object]:
    """The settings of a run that differ from the method's recipe.

    Args:
        spec: The specification of a run.
    """
    known = recipe_named(spec.method, spec.data_name, spec.batch_size)
    return {k: v for k, v in spec.settings.items() if known.get(k, _Absent) != v}


def text_table(table: Sequence[Row], form: str = "text", *, mark: bool = True) -> str:
    """Write rows as a table; the lowest error of a column is bold, or has a star in plain text.

    Below the table, except in CSV, are the errors of each round if the stream repeats, a line that explains the marks
    in the table, and `notes`.

    Args:
        table: The rows.
        form: "text", "markdown", "latex" or "csv". Labels and domains are escaped for the form.
        mark: Whether to mark the lowest errors.
    """
    domains = list(dict.fromkeys(domain for row in table for domain in row.errors))
    head = ["method", *domains, "mean", "seeds", "images/s"]
    body = [[r.label, *_numbers(r, domains), _mean(r), str(len(r.seeds)), f"{r.images_per_second:.0f}"] for r in table]
    marked = _lowest(body, len(domains) + 1) if mark else set()
    below = [*_legend(table, form, marked), *notes(table)]
    rounds = [[row.label, *(f"{error:.1f}" for error in row.rounds)] for row in table if row.rounds]
    if form == "csv" or not rounds:
        return write_table([head, *body], form, marked, notes=below)
    most = max(map(len, rounds))
    filled = [[*line, *[NONE] * (most - len(line))] for line in rounds]
    repeated = write_table([["error per round", *map(str, range(1, most))], *filled], form, notes=below)
    return f"{write_table([head, *body], form, marked)}\n{repeated}"


def write_table(
    lines: Sequence[Sequence[str]], form: str, marked: Set[tuple[int, int]] = frozenset(), *, notes: Sequence[str] = ()
) -> str:
    """Write the cells of a table in one of four forms.

    Args:
        lines: The header and the lines below it, as plain text; they are escaped for the form.
        form: "text", "markdown", "latex" or "csv".
        marked: Line and column of cells to mark: bold, or a star in plain text, or nothing in CSV.
        notes: Written below the table, except in CSV; in LaTeX as comments.
    """
    if form == "csv":
        file = io.StringIO()
        plain = [["" if cell == NONE else cell for cell in line] for line in lines]
        csv.writer(file, lineterminator="\n").writerows(plain)
        return file.getvalue()
    escape, bold, write = _FORMS[form]
    shown = [
        [bold.format(escape(cell)) if (i, j) in marked else escape(cell) for j, cell in enumerate(line)]
        for i, line in enumerate(lines)
    ]
    below = [f"% {one_line(note)}\n" if form == "latex" else f"\n{escape(note)}\n" for note in notes]
    return write(shown) + "".join(below)


def notes(table: Sequence[Row]) -> list[str]:
    """Return the notes for a table: methods that see the batch before they predict, and runs that know the boundaries.

    Args:
        table: The rows.
    """
    resets = {record.spec.resets for row in table for record in row.records}
    told = [RESET_NOTES[when] for when in ("shift", "batch") if when in resets]
    return ([AFTER_NOTE] if any_after(table) else []) + told


def _legend(table: Sequence[Row], form: str, marked: Set[tuple[int, int]]) -> list[str]:
    """Explain the marks that occur in a table, in one line; † has a note of its own."""
    lowest = "* lowest error of the column" if form == "text" else "bold: lowest error of the column"
    marks = {
        lowest: bool(marked),
        "± standard deviation over seeds": any(row.spread is not None for row in table),
        "method^s was given source data": any("^s" in row.label.split(" ")[0] for row in table),
    }
    occurring = [mark for mark, occurs in marks.items() if occurs]
    return ["; ".join(occurring)] if occurring else []


def any_after(table: Sequence[Row]) -> bool:
    """Return whether any row has a method that predicts after using the batch.

    Args:
        table: The rows.
    """
    return any(row.label.split(" ")[0].endswith(AFTER) for row in table)


def _lowest(body: Sequence[Sequence[str]], columns: int) -> set[tuple[int, int]]:
    """Return the line and column of each lowest error; lines count from 1, below the header. One row has none."""
    if len(body) < 2:
        return set()
    best = {j: min(_value(line[j]) for line in body) for j in range(1, columns + 1)}
    return {(i, j) for i, line in enumerate(body, start=1) for j, lowest in best.items() if _value(line[j]) == lowest}


class _Absent:
    """Stands for a setting that a recipe does not have."""


def _row(name: str, group: Sequence[Record]) -> Row:
    scores = SeedScores.of_runs([record.errors for record in group], [record.mean for record in group])
    return Row(
        label=name,
        seeds=tuple(record.spec.seed for record in group),
        errors=scores.errors,
        mean=scores.mean,
        spread=scores.spread,
        images_per_second=statistics.fmean(record.images_per_second for record in group),
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
