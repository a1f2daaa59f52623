"""Run records as a report shows them: groups of comparable runs, each a table with the step logs behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctta.bench.compare import Row, comparable_key, label, rows
from ctta.bench.record import read_records
from ctta.bench.steps import COMPRESSED, STEPS, StepLog, StepLogs, read_log


@dataclass(frozen=True)
class Group:
    """Runs whose numbers can stand in one table.

    Args:
        rows: The table; each row carries the records of its runs.
        logs: Step logs by the address of a run; a run without one is missing.
    """

    rows: list[Row]
    logs: StepLogs

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of all runs, in the order of the table."""
        return [record for row in self.rows for record in row.records]

    @property
    def spec(self) -> dict[str, Any]:
        """The specification of the first run; what makes runs comparable is equal in all."""
        return dict(self.rows[0].records[0]["spec"])


def read_groups(folders: Sequence[Path]) -> list[Group]:
    """Read the runs below some folders and group those that can be compared.

    Rows are ordered with the source model first, then methods that do not learn, then the others by name.

    Args:
        folders: Folders of run records, or single records. A run that is found twice counts once.

    Raises:
        BadData: A folder has no complete record, or a record or step log is damaged.
    """
    records: dict[str, dict[str, Any]] = {}
    logs: dict[str, StepLog] = {}
    for folder in folders:
        new = [record for record in read_records(folder) if record["address"] not in records]
        near = folder.parent if folder.is_file() else folder
        homes = {path.parent.name: path.parent for name in (STEPS, COMPRESSED) for path in near.rglob(name)}
        records |= {record["address"]: record for record in new}
        logs |= {a: read_log(homes[a], record["counts"]) for record in new if (a := record["address"]) in homes}
    alike: dict[str, list[dict[str, Any]]] = {}
    for record in sorted(records.values(), key=_place):
        alike.setdefault(comparable_key(record["spec"]), []).append(record)
    return sorted((Group(rows(group), logs) for group in alike.values()), key=_kind)


def _place(record: dict[str, Any]) -> tuple[bool, bool, str, str]:
    name = record["spec"]["method"]
    return name != "source", record["passes"][1] > 0, name, label(record)


def _kind(group: Group) -> tuple[str, str, str]:
    spec = group.spec
    return str(spec["data"]["name"]), str(spec["model"]["name"]), str(spec["protocol"]["name"])
