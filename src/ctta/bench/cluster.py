"""Runs on a Ray cluster, one core each; a run whose worker dies goes on elsewhere from its last checkpoint."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from ctta.bench.jobs import Job, do
from ctta.errors import ClusterError, ConcurrentUse, MissingExtra
from ctta.registry import absolute_target

#: How often a run may lose its worker: one that brings down every worker it meets has to end.
LOSSES = 10

#: Seconds a run waits for its folder: a file server may hold the lock of a lost machine for a minute or two.
PATIENCE = 180.0


def on_cluster(
    jobs: Sequence[Job], folder: Path, *, address: str = "", save_every: float = 30.0
) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """The records of jobs as they end, each with the place of its job.

    Workers need ctta, and a file system where ``folder`` and the files of the jobs have the paths they have here.
    """
    try:
        import ray  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    task = ray.remote(num_cpus=1, max_retries=LOSSES)(_do)

    def send(place: int) -> Any:
        return task.remote(_anywhere(jobs[place]), folder.absolute(), save_every)

    running: dict[Any, int] = {}
    with _connected(ray, address):
        try:
            for place in range(len(jobs)):
                running[send(place)] = place
            while running:
                [ended] = _wait(ray, running, 1)
                place = running.pop(ended)
                if (record := _record(ray, ended, jobs[place])) is None:
                    running[send(place)] = place
                else:
                    yield place, record
        except BaseException:
            # Cancelled, a run saves a checkpoint first.
            for run in running:
                ray.cancel(run)
            if running:
                _wait(ray, running, len(running))
            raise


def _do(job: Job, folder: Path, save_every: float) -> dict[str, Any]:
    """Run a job on a worker."""
    torch.set_num_threads(1)
    # Ray cancels by SIGINT, which a cluster started in the background of a shell would ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return do(job, folder, save_every=save_every)
        except ConcurrentUse:
            if time.monotonic() > end:
                raise
            time.sleep(1)


def _record(ray: Any, ended: Any, job: Job) -> dict[str, Any] | None:
    """The record of a run; None where its worker was told to end, and the run has saved one step more at least."""
    try:
        return dict(ray.get(ended))
    except ray.exceptions.TaskCancelledError:
        return None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise ClusterError(f"Ray gave up {job.method} with seed {job.seed}: {error}") from error


def _anywhere(job: Job) -> Job:
    """The job with paths that do not depend on a working directory."""
    values = ((field.name, getattr(job, field.name)) for field in fields(job))
    paths: dict[str, Any] = {name: value.absolute() for name, value in values if isinstance(value, Path)}
    names: dict[str, Any] = {
        name: absolute_target(getattr(job, name)) for name in ("method", "stream", "model", "protocol")
    }
    return replace(job, **paths, **names)


def _wait(ray: Any, running: Iterable[Any], count: int) -> list[Any]:
    """So many runs that have ended."""
    # Ray tells of lost workers on stdout, where results belong.
    with redirect_stdout(sys.stderr):
        ended, _ = ray.wait(list(running), num_returns=count)
    return list(ended)


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """A connection to the cluster for as long as this lasts, or the one that the caller of ``ray.init`` has made."""
    if not address and ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS", "")
    try:
        _knock(address)
        ray.init(address or None, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"No Ray cluster lets us in{f' at {address}' if address else ''}: {error}. Check the address and that Ray "
            "runs there, in the version that is here; a cluster with tokens also needs RAY_AUTH_MODE=token."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Fail at once where nobody listens: Ray itself tries for many minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
