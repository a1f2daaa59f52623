"""An experiment: the cells of a table or figure, their outcomes, and drawings of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctta.bench.folder import RunFolder
from ctta.bench.record import Record
from ctta.bench.scores import SeedScores
from ctta.bench.steps import StepFacts
from ctta.bench.workload import Procedure
from ctta.paper.numbers import CORRUPTED, Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.plots.canvas import Canvas


@dataclass(frozen=True)
class Cell:
    """One run of an experiment and its published result.

    Args:
        label: Label of the row.
        procedure: The method and its protocol, with the paper's batch size and the requested seeds.
        published: The published result, if any.
        condition: The stream of the row, in tables that have several; a method of the user's own gets a row for each.
        source_data: Whether the method gets source data.
        images: Images per domain; None means as requested.
        domain: The only domain that counts; None means the mean over all.
        keep: Whether to keep the adapted model.
    """

    label: str
    procedure: Procedure
    published: Published | None = None
    condition: str = ""
    source_data: bool = False
    images: int | None = None
    domain: str | None = None
    keep: bool = False


@dataclass(frozen=True)
class Outcome:
    """A cell with the records of its runs.

    Args:
        cell: The cell.
        records: One record per seed.
        folder: Folder of the runs.
    """

    cell: Cell
    records: Sequence[Record]
    folder: Path

    @property
    def errors(self) -> list[float]:
        """The error of each run: the mean over domains, or that of the only domain that counts."""
        domain = self.cell.domain
        return [record.mean if domain is None else record.errors[domain] for record in self.records]

    @property
    def mean(self) -> float:
        """The mean error over seeds."""
        return self._scores.mean

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None with one seed."""
        return self._scores.spread

    @property
    def domains(self) -> dict[str, float]:
        """The error of each domain, averaged over seeds."""
        return self._scores.errors

    @property
    def published(self) -> Published | None:
        """The published result over the domains of these runs."""
        return None if self.cell.published is None else self.cell.published.over(self.domains)

    @property
    def _scores(self) -> SeedScores:
        return SeedScores.of_runs([record.errors for record in self.records], self.errors)

    def folder_of(self, record: Record) -> RunFolder:
        """The folder of one run.

        Args:
            record: Its record.
        """
        return RunFolder(self.folder / record.address)

    def steps(self, record: Record) -> list[StepFacts]:
        """The steps of one run.

        Args:
            record: Its record.
        """
        return self.folder_of(record).read_steps(record.counts)


@dataclass(frozen=True)
class Drawing:
    """A figure of an experiment.

    Args:
        name: Beginning of the file's name.
        title: Title of the figure.
        draw: Draws the outcomes of the experiment.
    """

    name: str
    title: str
    draw: Callable[[Sequence[Outcome]], Figure | Canvas]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Args:
        name: Its name on the command line.
        title: Its title.
        cells: Returns the cells for a dataset.
        drawings: Figures to draw from the outcomes.
        seeds: Default seeds, as on the command line.
        note: Printed below the table.
        datasets: The datasets it covers.
    """

    name: str
    title: str
    cells: Callable[[str], list[Cell]]
    drawings: tuple[Drawing, ...] = ()
    seeds: str = "0"
    note: str = ""
    datasets: tuple[str, ...] = CORRUPTED
