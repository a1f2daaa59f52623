"""Run records as a report shows them: groups of like runs, rows of one method and its settings, runs and steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctta.bench.compare import Row, differences, label, rows
from ctta.bench.evaluate import ENTROPY_BINS
from ctta.bench.figures.along import Stretch, stretches_of
from ctta.bench.record import read_records
from ctta.bench.run import STEPS
from ctta.bench.steps import read_steps


@dataclass(frozen=True)
class Log:
    """What the steps of a run logged; of the histograms of entropy only the sums are kept."""

    steps: list[dict[str, Any]]
    right: list[int]
    wrong: list[int]

    def stretches(self) -> list[Stretch]:
        """The stretches of the stream that are of one domain each."""
        return stretches_of(self.steps)


@dataclass(frozen=True)
class Run:
    """A record, and its steps where they lie beside it."""

    record: dict[str, Any]
    log: Log | None


@dataclass(frozen=True)
class Line:
    """A row of the table of errors, and the runs behind it."""

    row: Row
    runs: list[Run]

    @property
    def peak_memory(self) -> float | None:
        """Mean over the runs, in bytes; None where one does not tell."""
        sizes = [run.record["peak_memory"] for run in self.runs]
        return None if None in sizes else statistics.fmean(sizes)


@dataclass(frozen=True)
class Group:
    """Runs whose numbers can stand in one table."""

    lines: list[Line]

    @property
    def runs(self) -> list[Run]:
        """All of them, in the order of the table."""
        return [run for line in self.lines for run in line.runs]

    @property
    def spec(self) -> dict[str, Any]:
        """The specification of the first run: what makes runs alike is the same in all."""
        return dict(self.lines[0].runs[0].record["spec"])


def read_groups(folders: Sequence[Path]) -> list[Group]:
    """The runs below some folders, like with like; the source model comes first, then methods that do not learn."""
    runs: dict[str, Run] = {}
    for folder in folders:
        records = read_records(folder)
        logs = {path.parent.name: path for path in _near(folder).rglob(STEPS)}
        for record in records:
            if record["address"] not in runs:
                path = logs.get(record["address"])
                runs[record["address"]] = Run(record, None if path is None else _read_log(path, record))
    alike: list[list[Run]] = []
    for run in sorted(runs.values(), key=_place):
        home = next((g for g in alike if not differences([g[0].record, run.record])), None)
        if home is None:
            alike.append([run])
        else:
            home.append(run)
    return sorted((Group(_lines(group)) for group in alike), key=_kind)


def _near(folder: Path) -> Path:
    return folder.parent if folder.is_file() else folder


def _place(run: Run) -> tuple[bool, bool, str, str]:
    record = run.record
    name = record["spec"]["method"]
    return name != "source", record["passes"][1] > 0, name, label(record)


def _kind(group: Group) -> tuple[str, str, str]:
    spec = group.spec
    return str(spec["data"]["name"]), str(spec["model"]["name"]), str(spec["protocol"]["name"])


def _lines(runs: Sequence[Run]) -> list[Line]:
    # The rows of a comparison are in order of first appearance, by label and source data.
    found: dict[tuple[str, str | None], list[Run]] = {}
    for run in runs:
        found.setdefault((label(run.record), run.record["spec"].get("source_data")), []).append(run)
    table = rows([run.record for run in runs])
    return [Line(row, mine) for row, mine in zip(table, found.values(), strict=True)]


def _read_log(path: Path, record: dict[str, Any]) -> Log:
    right, wrong = [0] * ENTROPY_BINS, [0] * ENTROPY_BINS
    steps = []
    for step in read_steps(path, record["counts"]):
        for sums, counts in ((right, step.pop("entropy_right", ())), (wrong, step.pop("entropy_wrong", ()))):
            for place, count in enumerate(counts[:ENTROPY_BINS]):
                sums[place] += count
        steps.append(step)
    return Log(steps, right, wrong)
