"""Run jobs on a Ray cluster, one core each; a run whose worker is lost resumes elsewhere from its last checkpoint."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from ctta.bench.executors.base import Finished
from ctta.bench.jobs import Job, execute
from ctta.bench.progress import ProgressDisplay
from ctta.bench.record import Record
from ctta.errors import ClusterError, ConcurrentUse, MissingExtra

#: Give up a run after this many lost workers.
MAX_LOST_WORKERS = 10

#: Seconds to wait for a run's folder: a file server may hold the lock of a lost machine for a minute or two.
LOCK_TIMEOUT = 180.0


class Ray:
    """Runs jobs on a Ray cluster, which decides how many run at once. Ctrl-C saves a checkpoint of every run.

    Workers need ctta, and a file system where the folder of the runs and the files of the jobs have the same paths as
    here.

    Args:
        address: Address of the cluster. An empty string means the one named by ``RAY_ADDRESS`` or running on this
            machine, or else a new one.
    """

    def __init__(self, address: str = "") -> None:
        self.address = address

    def run(
        self, tasks: Sequence[Job], folder: Path, *, save_every: float, progress: ProgressDisplay | None
    ) -> Finished:
        """Run jobs; see `Executor.run`.

        Args:
            tasks: The jobs, submitted in this order.
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints of a run.
            progress: Not used here: these runs are not in this process, and the caller reports finished ones.

        Raises:
            MissingExtra: Ray is not installed.
            ClusterError: There is no cluster at the address, or it gave up a run.
        """
        try:
            import ray  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("ray", "ray") from error
        task = ray.remote(num_cpus=1, max_retries=MAX_LOST_WORKERS)(_execute)

        def send(index: int) -> Any:
            return task.remote(tasks[index].with_absolute_paths(), folder.absolute(), save_every)

        running: dict[Any, int] = {}
        with _connected(ray, self.address):
            try:
                for index in range(len(tasks)):
                    running[send(index)] = index
                while running:
                    [ended] = _wait(ray, running, 1)
                    index = running.pop(ended)
                    if (record := _record(ray, ended, tasks[index])) is None:
                        running[send(index)] = index
                    else:
                        yield index, record
            except BaseException:
                # A cancelled run saves a checkpoint; wait for it.
                for run in running:
                    ray.cancel(run)
                if running:
                    _wait(ray, running, len(running))
                raise


def _execute(job: Job, folder: Path, save_every: float) -> Record:
    """Run a job on a worker."""
    torch.set_num_threads(1)
    # Ray cancels with SIGINT, which is ignored in a cluster that a shell started in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return execute(job, folder, save_every=save_every)
        except ConcurrentUse:
            if time.monotonic() > end:
                raise
            time.sleep(1)


def _record(ray: Any, ended: Any, job: Job) -> Record | None:
    """Return the record of a run; None if it was cancelled, after it had saved at least one more step."""
    try:
        record = ray.get(ended)
    except ray.exceptions.TaskCancelledError:
        return None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise ClusterError(f"Ray gave up {job}: {error}") from error
    assert isinstance(record, Record)
    return record


def _wait(ray: Any, running: Iterable[Any], count: int) -> list[Any]:
    """Wait until `count` runs have ended, and return them."""
    # Ray reports lost workers on stdout, which is reserved for results.
    with redirect_stdout(sys.stderr):
        ended, _ = ray.wait(list(running), num_returns=count)
    return list(ended)


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Connect to the cluster, or use the connection that the caller has made with ``ray.init``."""
    if not address and ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS", "")
    try:
        _check_reachable(address)
        ray.init(address or None, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"Could not connect to a Ray cluster{f' at {address}' if address else ''}: {error}. Check the address, and "
            "that the same version of Ray runs there; a cluster with tokens also needs RAY_AUTH_MODE=token."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fail at once if nothing listens at an address; Ray itself would retry for many minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
