"""Run tasks in threads of this process, so that they can share a model and a stream in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import torch

from ctta.adapter import Adapter
from ctta.bench.executors.base import Finished, Task
from ctta.bench.progress import Progress, ProgressDisplay
from ctta.bench.record import Record
from ctta.bench.steps import StepFacts
from ctta.streams.batch import Batch


class Threads:
    """Runs tasks in as many threads as torch would use, each with one torch thread.

    One thread per run keeps all cores busy even if the network is too small to use several, is not slowed down by other
    processes on the machine, and gives the same numbers on any number of cores. An interruption ends all runs after
    their current step, without a checkpoint.
    """

    def run(
        self, tasks: Sequence[Task], folder: Path, *, save_every: float, progress: ProgressDisplay | None
    ) -> Finished:
        """Run tasks; see `Executor.run`.

        Args:
            tasks: The tasks, started in this order.
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints of a run.
            progress: Shows the progress of the runs; the caller reports finished ones. None shows nothing.
        """
        stop = Event()

        def started(adapter: Adapter, steps: int) -> Progress:
            show = None if progress is None else progress.started(adapter, steps)

            def step(batch: Batch, log: StepFacts) -> None:
                # Threads receive no signals, so each of them checks for a stop after every step.
                if stop.is_set():
                    raise CancelledError
                if show is not None:
                    show(batch, log)

            return step

        def execute(task: Task) -> Record:
            return task.execute(folder, save_every=save_every, progress=started)

        with _one_torch_thread() as threads, ThreadPoolExecutor(threads) as pool:
            indices: dict[Future[Record], int] = {pool.submit(execute, task): i for i, task in enumerate(tasks)}
            try:
                for future in as_completed(indices):
                    yield indices[future], future.result()
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise


@contextmanager
def _one_torch_thread() -> Iterator[int]:
    """Limit torch to one thread, and yield the previous number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
