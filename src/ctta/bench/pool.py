"""Several runs at once on one machine, one torch thread each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import torch

from ctta.bench.jobs import Job, do
from ctta.bench.run import Listen


class Follow(Protocol):
    """Whoever shows progress: a listener for a run in this process, and the news that a run is done."""

    def listener(self) -> Listen | None:
        """The listener for the next run, or None where runs go on in other processes."""

    def done(self, record: dict[str, Any]) -> None:
        """A run has ended."""


def do_all(
    jobs: Sequence[Job], folder: Path, *, workers: int = 1, save_every: float = 30.0, follow: Follow | None = None
) -> list[dict[str, Any]]:
    """The records of jobs, in their order."""
    records = []
    if workers == 1:
        for job in jobs:
            listener = follow.listener() if follow is not None else None
            records.append(do(job, folder, save_every=save_every, progress=listener))
            if follow is not None:
                follow.done(records[-1])
        return records
    # Spawned, because a forked torch may hang; one thread each, because contended threads are many times slower.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        futures = [pool.submit(do, job, folder, save_every=save_every) for job in jobs]
        try:
            for future in futures:
                records.append(future.result())
                if follow is not None:
                    follow.done(records[-1])
        except BaseException:
            # Asked to end, a run saves a checkpoint first.
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return records
