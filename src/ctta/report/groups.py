"""Run records as a report shows them: groups of comparable runs, each a table with the step logs behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ctta.bench.comparability import comparable_key
from ctta.bench.compare import Row, rows, table_order
from ctta.bench.folder import read_records, runs_with_steps
from ctta.bench.record import Record
from ctta.bench.spec import RunSpec
from ctta.bench.steps import StepLog, StepLogs


@dataclass(frozen=True)
class Group:
    """Runs whose numbers can be compared in one table.

    Args:
        rows: The table; each row carries the records of its runs.
        logs: Step logs by the address of a run; a run without one is missing.
    """

    rows: list[Row]
    logs: StepLogs

    @property
    def records(self) -> list[Record]:
        """The records of all runs, in the order of the table."""
        return [record for row in self.rows for record in row.records]

    @property
    def spec(self) -> RunSpec:
        """The specification of the first run; what makes runs comparable is equal in all."""
        return self.rows[0].records[0].spec


def read_groups(folders: Sequence[Path]) -> list[Group]:
    """Read the runs below some folders and group those that can be compared.

    Rows are ordered with the source model first, then methods that do not learn, then the others by name.

    Args:
        folders: Folders of run records, or single records. A run that is found twice is counted once.

    Raises:
        BadData: A folder has no complete record, or a record or step log is damaged.
    """
    records: dict[str, Record] = {}
    logs: dict[str, StepLog] = {}
    for folder in folders:
        runs = runs_with_steps([folder])
        for found in read_records(folder):
            record = records.setdefault(found.address, found)
            # The log may be missing where the record was found first.
            if record.address in runs and record.address not in logs:
                logs[record.address] = runs[record.address].read_log(record.counts)
    alike: dict[str, list[Record]] = {}
    for record in sorted(records.values(), key=table_order):
        alike.setdefault(comparable_key(record.spec), []).append(record)
    return sorted((Group(rows(group), logs) for group in alike.values()), key=_kind)


def _kind(group: Group) -> tuple[str, str, str]:
    spec = group.spec
    return spec.data_name, spec.model_name, spec.protocol_name
