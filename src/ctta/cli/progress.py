"""Progress bars of runs on stderr: domain, running error, images per second, time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ctta.adapter import Adapter
from ctta.bench.folder import RunFolder
from ctta.bench.progress import step_cost
from ctta.bench.record import Record
from ctta.bench.steps import StepFacts
from ctta.streams.batch import Batch


class Bars:
    """A bar per run, and one for all of them that takes the cost of each method's steps into account.

    Args:
        adapters: The methods of all runs.
        steps: Number of steps of each run.
        quiet: Whether to show nothing.
    """

    def __init__(self, adapters: Sequence[Adapter], steps: int, *, quiet: bool) -> None:
        self.steps = steps
        self.bars = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[domain]:<18}"),
            TextColumn("{task.fields[error]:>8}"),
            TextColumn("{task.fields[speed]:>12}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=Console(stderr=True),
            disable=quiet,
            # A batch can take long on a slow machine, and the time left is estimated from several.
            speed_estimate_period=60,
        )
        work = sum(step_cost(adapter) for adapter in adapters) * steps
        self.whole = self._add("all", work) if len(adapters) > 1 else None

    def add(self, adapter: Adapter, prefix: str = "") -> _Bar:
        """Add the bar of a run.

        Args:
            adapter: Its method.
            prefix: Shown before the name of the method.
        """
        return _Bar(self, self._add(prefix + type(adapter).__name__, self.steps), step_cost(adapter))

    def _add(self, name: str, total: int) -> TaskID:
        return self.bars.add_task(name, total=total, domain="", error="", speed="")


class _Bar:
    def __init__(self, owner: Bars, task: TaskID, cost: int) -> None:
        self.owner = owner
        self.task = task
        self.cost = cost
        self.wrong = 0.0
        self.seen = 0
        self.begin = time.perf_counter()

    def __call__(self, batch: Batch, log: StepFacts) -> None:
        self.seen += len(batch)
        self.wrong += log["error"] * len(batch)
        speed = self.seen / (time.perf_counter() - self.begin)
        bars = self.owner.bars
        bars.update(
            self.task,
            advance=1,
            domain=batch.domain,
            error=f"{self.wrong / self.seen:.1f} %",
            speed=f"{speed:.0f} images/s",
        )
        if self.owner.whole is not None:
            bars.advance(self.owner.whole, self.cost)


class DemoDisplay:
    """The progress of the demo: a bar per method and one for all, to be used in a ``with`` statement.

    Args:
        adapters: The methods.
        steps: Number of steps of each.
        quiet: Whether to show nothing.
    """

    def __init__(self, adapters: Sequence[Adapter], steps: int, *, quiet: bool) -> None:
        self.quiet = quiet
        self.bars = Bars(adapters, steps, quiet=quiet)
        self.work = {type(adapter).__name__.lower(): step_cost(adapter) * steps for adapter in adapters}

    def __enter__(self) -> DemoDisplay:
        self.bars.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.bars.stop()

    def started(self, adapter: Adapter, steps: int) -> _Bar:
        """Add the bar of a method; see `ProgressDisplay.started`."""
        self.work.pop(type(adapter).__name__.lower(), None)
        return self.bars.add(adapter)

    def finished(self, record: Record) -> None:
        """Count the work of a run that was already finished, and print its error if there are no bars to see.

        See `ProgressDisplay.finished`.
        """
        done = self.work.pop(record.spec.method.partition("@")[0], 0)
        if self.bars.whole is not None:
            self.bars.bars.advance(self.bars.whole, done)
        if not (self.quiet or self.bars.bars.console.is_terminal):  # where bars are not shown, as in a log file
            self.bars.bars.console.print(f"{record.spec.method}: {record.mean:.2f} %", highlight=False, markup=False)


class RunsDisplay:
    """The progress of runs: a bar for each run of this process, a line for each other or finished run.

    Args:
        runs: Number of runs.
        folder: Folder of the runs.
        here: Whether they run in this process, one after the other.
    """

    def __init__(self, runs: int, folder: Path, *, here: bool) -> None:
        self.runs = runs
        self.folder = folder
        self.here = here
        self.ended = 0
        self.bars: Bars | None = None
        files = (RunFolder(path).record_file for path in folder.glob("*"))
        self.before = {file: file.stat().st_mtime_ns for file in files if file.exists()}

    def started(self, adapter: Adapter, steps: int) -> _Bar:
        """Show a bar; see `ProgressDisplay.started`."""
        self.bars = Bars([adapter], steps, quiet=False)
        self.bars.bars.start()
        return self.bars.add(adapter, f"{self.ended + 1}/{self.runs} " if self.runs > 1 else "")

    def finished(self, record: Record) -> None:
        """Close the bar of the run, or print that it has ended; see `ProgressDisplay.finished`."""
        self.ended += 1
        path = RunFolder(self.folder / record.address).record_file
        if self.bars is not None:
            self.bars.bars.stop()
            self.bars = None
        elif path in self.before and path.stat().st_mtime_ns == self.before[path]:
            self._print(f"already done, {path}")
        elif not self.here:
            spec = record.spec
            self._print(f"{self.ended}/{self.runs} {spec.method} seed {spec.seed}: {record.mean:.2f} %")

    def _print(self, text: str) -> None:
        Console(stderr=True, soft_wrap=True).print(text, highlight=False, markup=False)
