"""Run tasks one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta.bench.executors.base import Finished, Task
from ctta.bench.progress import ProgressDisplay


class Serial:
    """Runs tasks one after the other; Ctrl-C saves a checkpoint of the current one."""

    def run(
        self, tasks: Sequence[Task], folder: Path, *, save_every: float, progress: ProgressDisplay | None
    ) -> Finished:
        """Run tasks; see `Executor.run`.

        Args:
            tasks: The tasks, run in this order.
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints of a run.
            progress: Shows the progress of the runs; the caller reports finished ones. None shows nothing.
        """
        started = None if progress is None else progress.started
        for index, task in enumerate(tasks):
            yield index, task.execute(folder, save_every=save_every, progress=started)
