"""Progress bars on stderr: domain, running error, images per second, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ctta.adapter import Adapter
from ctta.bench.demo import cost
from ctta.bench.record import NAME as RECORD
from ctta.streams.batch import Batch


class Bars:
    """One bar per method, and one for all of them, weighted by the cost of a step of each method.

    Args:
        adapters: The methods that will run.
        steps: Steps per method.
        quiet: Show nothing.
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
            # A batch may take seconds on a slow machine, and estimating the time left needs several of them.
            speed_estimate_period=60,
        )
        work = sum(cost(adapter) for adapter in adapters) * steps
        self.whole = self._add("all", work) if len(adapters) > 1 else None

    def __enter__(self) -> Bars:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def follow(self, adapter: Adapter, place: str = "") -> _Bar:
        """Add a bar for a method, and return the function to call after every step.

        Args:
            adapter: The method.
            place: Text before its name, such as "2/5 ".
        """
        return _Bar(self, self._add(place + type(adapter).__name__, self.steps), cost(adapter))

    def _add(self, name: str, total: int) -> TaskID:
        return self.bars.add_task(name, total=total, domain="", error="", speed="")


class _Bar:
    def __init__(self, owner: Bars, task: TaskID, cost: int) -> None:
        self.owner, self.task, self.cost = owner, task, cost
        self.incorrect, self.seen, self.begin = 0.0, 0, time.perf_counter()

    def __call__(self, batch: Batch, log: dict[str, Any]) -> None:
        self.seen += len(batch)
        self.incorrect += log["error"] * len(batch)
        speed = self.seen / (time.perf_counter() - self.begin)
        bars = self.owner.bars
        bars.update(
            self.task,
            advance=1,
            domain=batch.domain,
            error=f"{self.incorrect / self.seen:.1f} %",
            speed=f"{speed:.0f} images/s",
        )
        if self.owner.whole is not None:
            bars.advance(self.owner.whole, self.cost)


class Follower:
    """Shows the progress of runs: a bar for a run in this process, a line for one that finishes elsewhere.

    Args:
        runs: Number of runs.
        folder: The folder of their records.
        one_by_one: Whether the runs take place in this process, one at a time.
    """

    def __init__(self, runs: int, folder: Path, *, one_by_one: bool) -> None:
        self.runs, self.folder, self.one_by_one, self.ended = runs, folder, one_by_one, 0
        self.bars: Bars | None = None
        self.before = {path: path.stat().st_mtime_ns for path in folder.glob(f"*/{RECORD}")}

    def listener(self) -> Callable[[Adapter, int], _Bar] | None:
        """Return the function that starts the bar of the next run, or None if runs take place elsewhere."""
        return self._start if self.one_by_one else None

    def done(self, record: dict[str, Any]) -> None:
        """Close the bar of a run, or print that the run has finished.

        Args:
            record: The record of the run.
        """
        self.ended += 1
        path = self.folder / record["address"] / RECORD
        if self.bars is not None:
            self.bars.__exit__()
            self.bars = None
        elif path in self.before and path.stat().st_mtime_ns == self.before[path]:
            self._say(f"already done, {path}")
        elif not self.one_by_one:
            spec = record["spec"]
            self._say(f"{self.ended}/{self.runs} {spec['method']} seed {spec['seed']}: {record['mean']:.2f} %")

    def _say(self, text: str) -> None:
        Console(stderr=True, soft_wrap=True).print(text, highlight=False, markup=False)

    def _start(self, adapter: Adapter, steps: int) -> _Bar:
        self.bars = Bars([adapter], steps, quiet=False)
        self.bars.__enter__()
        return self.bars.follow(adapter, f"{self.ended + 1}/{self.runs} " if self.runs > 1 else "")
