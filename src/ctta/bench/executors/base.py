"""Types shared by all executors."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ctta.bench.progress import ProgressDisplay, RunStarted
from ctta.bench.record import Record

#: Records in the order in which runs end, each with the index of its task.
Finished = Generator[tuple[int, Record], None, None]

T_contra = TypeVar("T_contra", contravariant=True)


class Task(Protocol):
    """Something that can run in this process: a job, or a run that is ready to start."""

    def execute(self, folder: Path, *, save_every: float, progress: RunStarted | None) -> Record:
        """Run it, or find its record.

        Args:
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints.
            progress: Called when steps are about to be computed.
        """


class Executor(Protocol[T_contra]):
    """Runs tasks. If it is closed or interrupted early, it stops the active runs before it returns."""

    def run(
        self, tasks: Sequence[T_contra], folder: Path, *, save_every: float, progress: ProgressDisplay | None
    ) -> Finished:
        """Run tasks, and yield their records as they end.

        Args:
            tasks: The tasks, started in this order.
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints of a run.
            progress: Shows the progress of runs in this process; the caller reports finished ones.
        """
