"""Several runs, each in its turn, at once on one machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import torch

from ctta.allocator import keep_freed_memory
from ctta.bench.cluster import on_cluster
from ctta.bench.jobs import Job, do
from ctta.bench.run import Listen
from ctta.errors import ParameterError

#: Records as runs end, each with the place of its job.
Ended = Generator[tuple[int, dict[str, Any]], None, None]


class Follow(Protocol):
    """Whoever shows progress: a listener for a run in this process, and the news that a run is done."""

    def listener(self) -> Listen | None:
        """The listener for the next run, or None where runs go on in other processes."""

    def done(self, record: dict[str, Any]) -> None:
        """A run has ended."""


def do_all(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int = 1,
    ray: str | None = None,
    save_every: float = 30.0,
    follow: Follow | None = None,
) -> list[dict[str, Any]]:
    """The records of jobs, in their order.

    ``ray`` sends the runs to the Ray cluster at this address, which decides how many go on at once; "" stands for the
    one that ``RAY_ADDRESS`` names or that runs on this machine, and one is started where there is none.
    """
    if ray is not None and workers != 1:
        raise ParameterError(f"A Ray cluster has its own workers: leave out --workers. Got {workers}.")
    if ray is not None:
        ended = on_cluster(jobs, folder, address=ray, save_every=save_every)
    elif workers == 1:
        ended = _one_by_one(jobs, folder, save_every, follow)
    else:
        ended = _at_once(jobs, folder, save_every, workers)
    records = {}
    with closing(ended):
        for place, record in ended:
            records[place] = record
            if follow is not None:
                follow.done(record)
    return [records[place] for place in range(len(jobs))]


def _one_by_one(jobs: Sequence[Job], folder: Path, save_every: float, follow: Follow | None) -> Ended:
    for place, job in enumerate(jobs):
        listener = follow.listener() if follow is not None else None
        yield place, do(job, folder, save_every=save_every, progress=listener)


def _at_once(jobs: Sequence[Job], folder: Path, save_every: float, workers: int) -> Ended:
    # Spawned, because a forked torch may hang; one thread each, because contended threads are many times slower.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin) as pool:
        places = {pool.submit(do, job, folder, save_every=save_every): place for place, job in enumerate(jobs)}
        try:
            for future in as_completed(places):
                yield places[future], future.result()
        except BaseException:
            # Asked to end, a run saves a checkpoint first.
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _begin() -> None:
    """Prepare a worker."""
    keep_freed_memory()
    torch.set_num_threads(1)
