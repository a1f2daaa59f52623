"""Several runs, each in its turn, at once on one machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, Protocol

import torch

from ctta.allocator import keep_freed_memory
from ctta.bench.cluster import on_cluster
from ctta.bench.jobs import Job, do
from ctta.bench.run import Listen, asked_to_stop
from ctta.errors import ParameterError, WorkerLost

#: Records as runs end, each with the place of its job.
Ended = Generator[tuple[int, dict[str, Any]], None, None]

#: Seconds until a wish to stop is heard at the latest.
_HEARING = 0.2


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
    if workers < 1:
        raise ParameterError(f"There must be one worker at least. Got {workers}.")
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
    waiting = deque(enumerate(jobs))
    running: dict[Any, int] = {}
    with asked_to_stop() as stop, _staff(min(workers, len(jobs)), folder, save_every) as staff:
        free = list(staff)
        while waiting or running:
            while waiting and free:
                pipe = free.pop()
                running[pipe], job = waiting.popleft()
                # That a worker is gone is seen where its answer is missing.
                with suppress(OSError):
                    pipe.send(job)
            ended = wait(running, timeout=_HEARING)
            if stop:
                raise KeyboardInterrupt
            for pipe in [pipe for pipe in running if pipe in ended]:
                place = running.pop(pipe)
                yield place, _answer(pipe, staff[pipe], jobs[place])
                free.append(pipe)


def _answer(pipe: Connection, process: SpawnProcess, job: Job) -> dict[str, Any]:
    """The record that a worker gives, or the error that it met."""
    try:
        answer = pipe.recv()
    except (EOFError, OSError):
        process.join(10)
        raise WorkerLost(
            f"The process of {job.method} with seed {job.seed} is gone (exit code {process.exitcode}; -9 is often a "
            "lack of memory: try fewer --workers). Asked for again, the run goes on from its last checkpoint."
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return dict(answer)


@contextmanager
def _staff(count: int, folder: Path, save_every: float) -> Iterator[dict[Connection, SpawnProcess]]:
    """So many workers, each by the pipe to it; they are ended with this, and a run saves a checkpoint first."""
    # Spawned, because a forked torch may hang.
    context = multiprocessing.get_context("spawn")
    staff: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(count):
            pipe, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, folder, save_every), daemon=True)
            with _ctrl_c_kept_here():
                process.start()
            staff[pipe] = process
            theirs.close()
        yield staff
    finally:
        try:
            for pipe, process in staff.items():
                pipe.close()
                process.terminate()
            for process in staff.values():
                process.join()
        except BaseException:
            # Ctrl-C again.
            for process in staff.values():
                process.kill()
            raise


@contextmanager
def _ctrl_c_kept_here() -> Iterator[None]:
    """Processes that are started now are never sent Ctrl-C, not even while they import."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Started later, it would lift the mask.
    resource_tracker.ensure_running()
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _work(pipe: Connection, folder: Path, save_every: float) -> None:
    """Do the jobs that come through a pipe, until it is closed or this process is asked to end."""
    # A terminal sends Ctrl-C to all of its processes, and the first one ends the others: once is enough.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    # Contended threads are many times slower.
    torch.set_num_threads(1)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(_outcome(pipe.recv(), folder, save_every))


def _outcome(job: Job, folder: Path, save_every: float) -> Any:
    try:
        return do(job, folder, save_every=save_every)
    except Exception as error:  # noqa: BLE001, it is raised by whoever asked
        return ExceptionWithTraceback(error, error.__traceback__)


def _end_with_parent() -> None:
    """Ask this process to end when the one that started it is gone, in whatever way it went."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    signal.raise_signal(signal.SIGTERM)
