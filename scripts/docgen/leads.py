"""A table of what several streams say of the same rows, from the tables of the page."""

from __future__ import annotations

from collections.abc import Mapping

#: The difference of every row of a table from the row that it is compared with, by the label shown.
Differences = Mapping[str, str]


def leads(columns: str, tables: Mapping[str, Differences]) -> list[str]:
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
    lines = [["stream", *(heading for _, heading in pairs)], ["---"] * (1 + len(pairs))]
    for title, differences in tables.items():
        cells = [differences.get(label, "–") for label, _ in pairs]
        if any(cell != "–" for cell in cells):
            lines.append([title, *cells])
    return [f"| {' | '.join(line)} |" for line in lines]
