"""The figures of a group of runs."""

from __future__ import annotations

from collections.abc import Sequence

from ctta.bench.plots import line_style
from ctta.bench.report.canvas import Picture, logs_of, phone_style
from ctta.bench.report.cost import costs
from ctta.bench.report.entropies import entropies, has_entropies
from ctta.bench.report.errors import domain_errors, mean_errors, running_errors
from ctta.bench.report.runs import Group, Line
from ctta.bench.report.teacher import has_teacher, teacher

#: Rows that can be told apart in one figure.
MOST_ROWS = 13


def pictures(group: Group) -> list[Picture]:
    """Every figure the runs have the facts for; where rows are many, curves are drawn of the best."""
    shown = shown_rows(group.lines)
    # Grey is kept for the source.
    begin = 0 if shown[0].row.label == "source" else 1
    styles = {line.row.label: line_style(number) for number, line in enumerate(shown, start=begin)}
    with phone_style():
        made = [mean_errors(group.lines), costs(group.lines)]
        if len(shown[0].row.errors) > 1:
            made.append(domain_errors(shown, styles, in_order=group.spec["protocol"]["name"] != "random-order"))
        if logged := [line for line in shown if logs_of(line)]:
            made.append(running_errors(logged, styles))
        if counted := [line for line in shown if has_entropies(line)]:
            made.append(entropies(counted))
        made += [teacher(line) for line in shown if has_teacher(line)]
    return made


def shown_rows(lines: Sequence[Line]) -> list[Line]:
    """The rows drawn as curves: all, or the source and those of lowest mean error, in the order of the table."""
    if len(lines) <= MOST_ROWS:
        return list(lines)
    best = sorted(lines, key=lambda line: (line.row.label != "source", line.row.mean))[:MOST_ROWS]
    return [line for line in lines if line in best]
