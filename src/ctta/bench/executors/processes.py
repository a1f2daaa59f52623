"""Run jobs in worker processes of this machine."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

import torch

from ctta._system.allocator import keep_freed_memory
from ctta.bench.executors.base import Finished
from ctta.bench.interrupt import stop_requests
from ctta.bench.jobs import Job, execute
from ctta.bench.progress import ProgressDisplay
from ctta.bench.record import Record
from ctta.errors import ConcurrentUse, UserCodeError, WorkerLost

#: Polling interval for stop requests, in seconds.
_POLL = 0.2


class Processes:
    """Runs jobs in worker processes with one torch thread each; Ctrl-C saves a checkpoint of every run.

    Args:
        workers: Number of processes.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(
        self, tasks: Sequence[Job], folder: Path, *, save_every: float, progress: ProgressDisplay | None
    ) -> Finished:
        """Run jobs; see `Executor.run`.

        Args:
            tasks: The jobs, started in this order.
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints of a run.
            progress: Not used here: these runs are not in this process, and the caller reports finished ones.

        Raises:
            WorkerLost: A worker ended before its run did.
        """
        waiting = deque(enumerate(tasks))
        delayed: list[tuple[int, Job]] = []
        running: dict[Any, int] = {}
        with stop_requests() as stop, _workers(min(self.workers, len(tasks)), folder, save_every) as workers:
            idle = list(workers)
            while waiting or running or delayed:
                while waiting and idle:
                    pipe = idle.pop()
                    running[pipe], job = waiting.popleft()
                    # A dead worker is detected below, when its result is missing.
                    with suppress(OSError):
                        pipe.send(job)
                ready = wait(running, timeout=_POLL)
                if stop:
                    raise KeyboardInterrupt
                for pipe in [pipe for pipe in running if pipe in ready]:
                    index = running.pop(pipe)
                    idle.append(pipe)
                    try:
                        record = _result(pipe, workers[pipe], tasks[index])
                    except ConcurrentUse:
                        if not running:
                            raise
                        # Another of these jobs may be the same run; once that has ended, this one finds its record.
                        delayed.append((index, tasks[index]))
                    else:
                        waiting.extend(delayed)
                        delayed.clear()
                        yield index, record


def _result(pipe: Connection, process: SpawnProcess, job: Job) -> Record:
    """Receive the record of a job from a worker; if the worker sends an error, raise it."""
    try:
        result = pipe.recv()
    except (EOFError, OSError):
        process.join(10)
        raise WorkerLost(
            f"The process of {job} is gone (exit code {process.exitcode}; -9 often means "
            "out of memory: try fewer --workers). Run the command again to resume from the last checkpoint."
        ) from None
    if isinstance(result, Exception):
        raise result
    assert isinstance(result, Record)
    return result


@contextmanager
def _workers(count: int, folder: Path, save_every: float) -> Iterator[dict[Connection, SpawnProcess]]:
    """Start `count` workers, keyed by pipe. On exit they save a checkpoint of their run and stop."""
    # Spawned, because torch may hang in a forked process.
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(count):
            pipe, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, folder, save_every), daemon=True)
            with _ctrl_c_blocked():
                process.start()
            workers[pipe] = process
            theirs.close()
        yield workers
    finally:
        try:
            for pipe, process in workers.items():
                pipe.close()
                process.terminate()
            for process in workers.values():
                process.join()
        except BaseException:
            # Ctrl-C was pressed again.
            for process in workers.values():
                process.kill()
            raise


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Processes started in this context never receive Ctrl-C, not even while they import modules."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Start the resource tracker first: if it started later, it would lift the mask.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection, folder: Path, save_every: float) -> None:
    """Run the jobs that arrive through a pipe, until it is closed or this process is stopped."""
    # A terminal sends Ctrl-C to all of its processes. The parent handles it and stops the workers with SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    keep_freed_memory()
    # More threads than cores make every worker many times slower.
    torch.set_num_threads(1)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(_outcome(pipe.recv(), folder, save_every))


def _outcome(job: Job, folder: Path, save_every: float) -> Record | ExceptionWithTraceback:
    try:
        return execute(job, folder, save_every=save_every)
    except Exception as error:  # noqa: BLE001, the parent raises it
        return ExceptionWithTraceback(_sendable(error), error.__traceback__)


def _sendable(error: Exception) -> Exception:
    """The error itself, or what it says if the parent could not rebuild it, as some exceptions of users' code."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this line
    except Exception:  # noqa: BLE001, any code of the exception may fail
        return UserCodeError(f"{type(error).__name__}: {error}")
    return error


def _stop_with_parent() -> None:
    """Stop this process when its parent has ended, for whatever reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    signal.raise_signal(signal.SIGTERM)
