"""A table of what several streams say of the same rows, from the tables of the page."""

from __future__ import annotations

from collections.abc import Mapping

from docgen.markdown import table

#: The difference of every row of a table from the row that it is compared with, by the label shown.
Differences = Mapping[str, str]


def leads(columns: str, tables: Mapping[str, Differences]) -> str:
    """Return a table in Markdown with a line for each stream on which one of the rows was run.

    Args:
        columns: ``LABEL -> HEADING, ...``: the rows, as their tables label them, and what to call them here.
        tables: The tables, by the title of their stream.

    Raises:
        SystemExit: No table has a row with one of the labels.
    """
    pairs = [[part.strip() for part in column.split("->")] for column in columns.split(",")]
    for label, _ in pairs:
        if not any(label in differences for differences in tables.values()):
            raise SystemExit(f"no titled table has a row {label!r}")
    rows = [
        [title, *(differences.get(label, "–") for label, _ in pairs)]
        for title, differences in tables.items()
        if any(label in differences for label, _ in pairs)
    ]
    return table(["stream", *(heading for _, heading in pairs)], rows)
