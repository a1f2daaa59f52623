"""Runs on a real Ray cluster of two workers: the same numbers as here, whatever happens to a worker."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ctta.bench import cluster
from ctta.bench.cluster import ClusterError
from ctta.bench.jobs import Job, do
from ctta.bench.pool import do_all
from ctta.errors import MissingExtra, ParameterError, UnknownMethod
from ctta.streams.corruptions import CORRUPTIONS
from ctta.streams.digits import digits

SHORT = Job("tent", "digits", "digits_resnet8", corruptions=("fog",), images=40, batch_size=10)
LONG = replace(SHORT, method="dmse", corruptions=CORRUPTIONS, images=100)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ctta[ray]'")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What LONG gives in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return facts(do(LONG, folder), folder)


def facts(record: dict[str, Any], folder: Path) -> Any:
    """A record with its steps, and nothing that depends on time or on what the process did before."""
    steps = [json.loads(line) for line in lines_of(folder)] if record["complete"] else []
    timed = {"seconds", "images_per_second", "peak_memory"}
    return [{name: value for name, value in part.items() if name not in timed} for part in (record, *steps)]


def lines_of(folder: Path) -> list[str]:
    [log] = folder.rglob("steps.jsonl")
    return log.read_text().splitlines()


def wait_for(what: Callable[[], Any]) -> Any:
    limit = time.monotonic() + 120
    while not (found := what()):
        assert time.monotonic() < limit
        time.sleep(0.005)
    return found


def process_at(folder: Path) -> int:
    """The process that holds the folder of the only run."""
    [lock] = folder.rglob("lock")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == lock:
                return int(link.parts[2])
        except OSError:
            continue
    raise AssertionError("no process is at the run")


def end_the_worker(folder: Path, how: signal.Signals) -> list[str]:
    """End the worker of a run after its first checkpoint; the lines that checkpoint has behind it."""
    wait_for(lambda: list(folder.rglob("step-*.ctta")))
    worker = process_at(folder)
    os.kill(worker, signal.SIGSTOP)
    done = max(int(path.stem.removeprefix("step-")) for path in folder.rglob("step-*.ctta"))
    lines = lines_of(folder)[:done]
    os.kill(worker, how)
    os.kill(worker, signal.SIGCONT)
    return lines


@pytest.mark.ray
def test_records_are_those_of_this_process(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Relative paths, in another working directory than the one the workers have.
    monkeypatch.chdir(tmp_path)
    source = digits().stream
    np.savez("source.npz", x=source.x.numpy(), y=source.y.numpy())
    jobs = [SHORT, SHORT.with_seed(1), replace(SHORT, method="dmse", source_data=Path("source.npz"))]
    jobs = [replace(job, command=f"ctta run {job.method}") for job in jobs]
    for job in jobs:
        here = do(job, Path("here") / str(jobs.index(job)))
        [there] = do_all([job], Path("there") / str(jobs.index(job)), ray="")
        assert facts(here, tmp_path / "here" / str(jobs.index(job))) == facts(
            there, tmp_path / "there" / str(jobs.index(job))
        )


@pytest.mark.ray
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_whose_worker_ends_goes_on_from_its_checkpoint(
    ray: Any, tmp_path: Path, whole: Any, how: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(end_the_worker, tmp_path, how)
        [record] = do_all([LONG], tmp_path, ray="", save_every=0.0)
    assert facts(record, tmp_path) == whole
    # A step that was made again would have taken another time.
    kept = saved.result()
    assert 0 < len(kept) < 150 and lines_of(tmp_path)[: len(kept)] == kept
    assert capsys.readouterr().out == ""
