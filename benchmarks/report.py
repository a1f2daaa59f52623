"""Show measured values next to their targets, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.machine import has_bf16
from benchmarks.targets import TARGETS


@dataclass(frozen=True)
class Row:
    """A measured value.

    Args:
        name: What was measured.
        value: The value.
        details: Further numbers by column.
    """

    name: str
    value: float
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The rows of one measurement.

    Args:
        title: Name of the measurement.
        unit: Unit of the values.
        rows: The measured values.
    """

    title: str
    unit: str
    rows: Sequence[Row]

    def target(self, row: Row) -> float | None:
        """Return the upper limit for a row's value, if there is one."""
        return TARGETS.get(self.title, {}).get(row.name)

    def table(self) -> str:
        """Format the report as text with aligned columns."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row.details))
        head = ["", self.unit, *columns, "at most", ""]
        body = [
            [row.name, _number(row.value), *(_number(row.details.get(c)) for c in columns), *self._verdict(row)]
            for row in self.rows
        ]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [self.title]
        for name, *rest in [head, *body]:
            cells = [cell.rjust(width) for cell, width in zip(rest[:-1], widths[1:-1], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *cells, rest[-1]]).rstrip())
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Convert the report to plain values."""
        targets = [self.target(row) for row in self.rows]
        rows = [
            asdict(row) | {"at_most": most, "passed": _passed(row, most)}
            for row, most in zip(self.rows, targets, strict=True)
        ]
        return {"title": self.title, "unit": self.unit, "rows": rows}

    def _verdict(self, row: Row) -> tuple[str, str]:
        most = self.target(row)
        if most is None:
            return "", ""
        slow = " (this CPU has no bf16 instructions)" if "bf16" in row.name and not has_bf16() else ""
        return _number(most), ("pass" if _passed(row, most) else "FAIL") + slow


def _passed(row: Row, most: float | None) -> bool | None:
    return None if most is None else row.value <= most


def _number(value: float | None) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 4
    return f"{value:.{digits}f}"
