"""What an experiment is made of: cells that stand for runs, and drawings of their outcomes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctta.bench.paper import CORRUPTED, Published
from ctta.bench.steps import read_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Cell:
    """One run of an experiment and what the paper published for it; None stands for the experiment's usual value.

    ``domain`` names the one domain that counts instead of the mean over all; ``keep`` keeps the adapted model.
    """

    label: str
    method: str
    published: Published | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    source_data: bool = False
    protocol: str = "continual"
    times: int = 1
    severity: int = 5
    batch_size: int | None = None
    images: int | None = None
    domain: str | None = None
    keep: bool = False


@dataclass(frozen=True)
class Outcome:
    """A cell with the records of its runs, one per seed."""

    cell: Cell
    records: Sequence[dict[str, Any]]
    folder: Path

    @property
    def errors(self) -> list[float]:
        """The error of each run: the mean over domains, or of the one domain that counts."""
        domain = self.cell.domain
        return [record["mean"] if domain is None else record["errors"][domain] for record in self.records]

    @property
    def mean(self) -> float:
        """The mean error over seeds."""
        return statistics.fmean(self.errors)

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None where there is one."""
        return statistics.stdev(self.errors) if len(self.records) > 1 else None

    @property
    def domains(self) -> dict[str, float]:
        """The error of each domain, the mean over seeds."""
        return {d: statistics.fmean(r["errors"][d] for r in self.records) for d in self.records[0]["errors"]}

    @property
    def published(self) -> Published | None:
        """What the paper has for these domains."""
        return None if self.cell.published is None else self.cell.published.over(self.domains)

    def place(self, record: dict[str, Any]) -> Path:
        """The folder of a run."""
        return self.folder / str(record["address"])

    def steps(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """The log of a run's steps."""
        return read_steps(self.place(record) / record["steps"], record.get("counts"))


@dataclass(frozen=True)
class Drawing:
    """A figure of an experiment's outcomes."""

    name: str
    title: str
    draw: Callable[[Sequence[Outcome]], Figure]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper: its cells for a dataset, how they are drawn, and the datasets it is about."""

    name: str
    title: str
    cells: Callable[[str], list[Cell]]
    drawings: tuple[Drawing, ...] = ()
    seeds: str = "0"
    note: str = ""
    datasets: tuple[str, ...] = CORRUPTED
