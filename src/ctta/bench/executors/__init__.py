"""Run jobs: serially, in threads, in worker processes, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from ctta.bench.executors.base import Executor, Task
from ctta.bench.executors.processes import Processes
from ctta.bench.executors.ray import Ray
from ctta.bench.executors.serial import Serial
from ctta.bench.executors.threads import Threads
from ctta.bench.jobs import Job
from ctta.bench.progress import ProgressDisplay
from ctta.bench.record import Record
from ctta.errors import ParameterError

__all__ = ["Executor", "Processes", "Ray", "Serial", "Task", "Threads", "run_jobs", "run_tasks"]

T = TypeVar("T")


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int = 1,
    ray: str | None = None,
    save_every: float = 30.0,
    progress: ProgressDisplay | None = None,
) -> list[Record]:
    """Run jobs with the executor that the arguments choose.

    Args:
        jobs: The jobs.
        folder: Folder of the runs.
        workers: Number of worker processes; with one, jobs run in this process.
        ray: Address of a Ray cluster, which decides how many jobs run at once. An empty string means the cluster named
            by ``RAY_ADDRESS`` or running on this machine, or else a new one.
        save_every: Seconds between two checkpoints of a run.
        progress: Shows the progress.

    Returns:
        The records, in the order of the jobs.

    Raises:
        ParameterError: ``workers`` is below 1, or both workers and a cluster are requested.
    """
    if workers < 1:
        raise ParameterError(f"There must be at least one worker. Got {workers}.")
    if ray is not None and workers != 1:
        raise ParameterError(f"A Ray cluster has its own workers: leave out --workers. Got {workers}.")
    if ray is not None:
        return run_tasks(Ray(ray), jobs, folder, save_every=save_every, progress=progress)
    executor = Serial() if workers == 1 else Processes(workers)
    return run_tasks(executor, jobs, folder, save_every=save_every, progress=progress)


def run_tasks(
    executor: Executor[T],
    tasks: Sequence[T],
    folder: Path,
    *,
    save_every: float = 30.0,
    progress: ProgressDisplay | None = None,
) -> list[Record]:
    """Run tasks with an executor.

    Args:
        executor: The executor.
        tasks: Jobs, or runs that are ready to start.
        folder: Folder of the runs.
        save_every: Seconds between two checkpoints of a run.
        progress: Shows the progress.

    Returns:
        The records, in the order of the tasks.
    """
    records: dict[int, Record] = {}
    # Close the generator at once if a run fails, so that the executor stops the other runs.
    with closing(executor.run(tasks, folder, save_every=save_every, progress=progress)) as finished:
        for index, record in finished:
            records[index] = record
            if progress is not None:
                progress.finished(record)
    return [records[index] for index in range(len(tasks))]
