"""The plots of a group of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ctta.bench.compare import Row
from ctta.bench.steps import StepLog
from ctta.plots.canvas import Plot
from ctta.plots.cost import plot_costs
from ctta.plots.domains import plot_differences, plot_domain_errors
from ctta.plots.entropy import Histogram, plot_entropies
from ctta.plots.errors import plot_mean_errors, plot_running_errors
from ctta.plots.style import row_styles
from ctta.plots.teacher import has_teacher, plot_teacher
from ctta.protocol import protocol_of
from ctta.report.embed import Drawing, embed
from ctta.report.groups import Group

#: Rows that can be distinguished in one plot.
MOST_ROWS = 13


def drawings(group: Group, prefix: str) -> list[tuple[Drawing, str]]:
    """Draw every plot for which the runs of a group have the data.

    Args:
        group: Runs that can be compared.
        prefix: Beginning of every id inside the drawings, so that those of one page differ.

    Returns:
        Drawings to embed in a page, each with its caption.
    """
    plots = enumerate(plots_of(group), start=1)
    return [(embed(plot.svg(), f"{prefix}{number}-"), plot.caption) for number, plot in plots]


def plots_of(group: Group) -> Iterator[Plot]:
    """The plots of a group; with many rows, lines are drawn for the best only.

    Args:
        group: Runs that can be compared.
    """
    shown = shown_rows(group.rows)
    styles = row_styles(group.rows)
    logs = {row.label: _logs_of(row, group) for row in shown}
    yield plot_mean_errors(group.rows)
    yield plot_costs(group.rows)
    if len(shown[0].errors) > 1:
        protocol = protocol_of(group.spec.protocol)
        in_order = protocol is None or not protocol.any_domain_order
        yield plot_domain_errors(group.rows, styles, in_order=in_order)
        if len(shown) > 2:
            yield plot_differences(shown)
    if logged := [(label, [log.steps for log in mine]) for label, mine in logs.items() if mine]:
        yield plot_running_errors(logged, styles)
    if counted := [histogram for label, mine in logs.items() if (histogram := _histogram(label, mine))]:
        yield plot_entropies(counted)
    for row in shown:
        if logs[row.label] and has_teacher(steps := logs[row.label][0].steps):
            record = next(record for record in row.records if group.logs.get(record.address) is logs[row.label][0])
            yield plot_teacher(row.label, steps, record.settings.get("e_min"), record.spec.seed)


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows drawn as lines: all, or the source and those with the lowest mean error, in the order of the table.

    Args:
        rows: All rows of a table.
    """
    if len(rows) <= MOST_ROWS:
        return list(rows)
    best = sorted(rows, key=lambda row: (row.label != "source", row.mean))[:MOST_ROWS]
    return [row for row in rows if row in best]


def _logs_of(row: Row, group: Group) -> list[StepLog]:
    """The step logs of a row's runs that have any steps."""
    logs = (group.logs.get(record.address) for record in row.records)
    return [log for log in logs if log is not None and log.steps]


def _histogram(label: str, logs: Sequence[StepLog]) -> Histogram | None:
    """The predictions of a row by entropy; None if its steps did not count them."""
    histogram = Histogram.of_logs(label, logs)
    return histogram if sum(histogram.correct) + sum(histogram.wrong) else None
