"""Runs on a real Ray cluster of two workers: the same numbers as here, whatever happens to a worker."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import ctta.bench.executors.ray as ray_executor
from ctta.bench.executors import run_jobs
from ctta.bench.jobs import execute
from ctta.bench.record import Record
from ctta.corruptions import CORRUPTIONS
from ctta.datasets.digits import digits
from ctta.errors import ClusterError, MissingExtra, ParameterError, UnknownMethod
from jobs import change_job, make_job
from running import wait_for

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT = make_job("tent", "digits", "digits_resnet8", corruptions=("fog",), images=40, batch_size=10)
LONG = change_job(SHORT, method="dmse", corruptions=CORRUPTIONS[:10], images=100)
STEPS = 100


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ctta[ray]'")
    # As from a script that runs in the background: Ctrl-C is ignored, also by the workers.
    outside = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    signal.signal(signal.SIGINT, outside)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def whole(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The result of LONG in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return facts(execute(LONG, folder), folder)


def facts(record: Record, folder: Path) -> Any:
    """A record with its steps, and nothing that depends on time or on what the process did before."""
    steps = [json.loads(line) for line in lines_of(folder / record.address)]
    timed = {"seconds", "images_per_second", "peak_memory", "check"}
    return [{name: value for name, value in part.items() if name not in timed} for part in (record.to_json(), *steps)]


def lines_of(folder: Path) -> list[str]:
    [log] = folder.rglob("steps.jsonl")
    return log.read_text().splitlines()


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
    """End the worker of a run after its first checkpoint; return the log lines before it."""
    wait_for(lambda: list(folder.rglob("step-*.ctta")))
    worker = process_at(folder)
    os.kill(worker, signal.SIGSTOP)
    done = max(int(path.stem.removeprefix("step-")) for path in folder.rglob("step-*.ctta"))
    lines = lines_of(folder)[:done]
    os.kill(worker, how)
    os.kill(worker, signal.SIGCONT)
    return lines


def ending(folder: Path, how: signal.Signals) -> tuple[Any, list[str]]:
    """The result of LONG on the cluster with its worker ended midway, and the log lines before its checkpoint."""
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(end_the_worker, folder, how)
        [record] = run_jobs([LONG], folder, ray="", save_every=0.0)
    return facts(record, folder), saved.result()


@pytest.mark.ray
def test_records_are_those_of_this_process(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Relative paths, in another working directory than the one the workers have.
    monkeypatch.chdir(tmp_path)
    source = digits().stream
    np.savez("source.npz", x=source.x.numpy(), y=source.y.numpy())
    jobs = [SHORT, change_job(SHORT, method="dmse", seed=1, source_data=Path("source.npz"), command="ctta run ...")]
    here, there = Path("here"), Path("there")
    for job, record in zip(jobs, run_jobs(jobs, there, ray=""), strict=True):
        assert facts(record, there) == facts(execute(job, here), here)


@pytest.mark.ray
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_whose_worker_ends_goes_on_from_its_checkpoint(
    ray: Any, tmp_path: Path, whole: Any, how: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    found, saved = ending(tmp_path, how)
    assert found == whole
    # A repeated step would have a different duration.
    assert 0 < len(saved) < STEPS and lines_of(tmp_path)[: len(saved)] == saved
    assert capsys.readouterr().out == ""


@pytest.mark.ray
def test_a_run_that_loses_every_worker_is_given_up(
    ray: Any, tmp_path: Path, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "MAX_LOST_WORKERS", 0)
    with pytest.raises(ClusterError, match="gave up dmse with seed 0"):
        ending(tmp_path, signal.SIGKILL)
    assert facts(execute(LONG, tmp_path), tmp_path) == whole


@pytest.mark.ray
def test_ctrl_c_saves_what_goes_on_elsewhere(
    ray: Any, tmp_path: Path, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = threading.Event()
    cancel = ray.cancel

    def tell(run: Any) -> None:
        cancel(run)
        cancelled.set()

    def press() -> None:
        # Lines reach the file when a buffer is full: the run is in its middle.
        wait_for(lambda: any(log.stat().st_size for log in tmp_path.rglob("steps.jsonl")))
        # Ray looks for signals once a second, and the run could end before: it stands still until it is cancelled.
        worker = process_at(tmp_path)
        os.kill(worker, signal.SIGSTOP)
        signal.pthread_kill(main, signal.SIGINT)
        told = cancelled.wait(120)
        os.kill(worker, signal.SIGCONT)
        assert told

    monkeypatch.setattr(ray, "cancel", tell)
    main = threading.get_ident()
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
            pressed = pool.submit(press)
            run_jobs([LONG], tmp_path, ray="", save_every=3600.0)
    finally:
        signal.signal(signal.SIGINT, outside)
    pressed.result()
    [checkpoint] = tmp_path.rglob("step-*.ctta")
    saved = lines_of(tmp_path)
    assert len(saved) == int(checkpoint.stem.removeprefix("step-")) < STEPS
    assert facts(execute(LONG, tmp_path), tmp_path) == whole and lines_of(tmp_path)[: len(saved)] == saved


@pytest.mark.ray
def test_a_run_waits_for_the_lock_of_a_lost_machine_while_others_end(ray: Any, tmp_path: Path) -> None:
    place = tmp_path / "there" / execute(SHORT, tmp_path / "here").address
    place.mkdir(parents=True)

    class Display:
        news: ClassVar[list[int]] = []

        def started(self, adapter: object, steps: int) -> Any:
            raise AssertionError("no run goes on in this process")

        def finished(self, record: Record) -> None:
            self.news.append(record.spec.seed)
            fcntl.flock(lock, fcntl.LOCK_UN)

    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        records = run_jobs([SHORT, SHORT.with_seed(1)], tmp_path / "there", ray="", progress=Display())
    assert Display.news == [1, 0] and [record.spec.seed for record in records] == [0, 1]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("change", "error"), [({"settings": {"alpa": 1}}, ParameterError), ({"method": "tnet"}, UnknownMethod)]
)
def test_a_mistake_is_told_as_in_this_process(ray: Any, tmp_path: Path, change: dict[str, Any], error: type) -> None:
    job = change_job(SHORT, **change)
    with pytest.raises(error) as here:
        execute(job, tmp_path)
    with pytest.raises(error) as there:
        run_jobs([job, LONG], tmp_path, ray="")
    assert type(there.value) is error and str(there.value) == str(here.value)


@pytest.mark.ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1"])
def test_an_address_where_nobody_answers_is_told_at_once(ray: Any, tmp_path: Path, address: str) -> None:
    # Left to itself Ray tries for longer than a test may take.
    with pytest.raises(ClusterError, match=f"Could not connect to a Ray cluster at {address}"):
        run_jobs([SHORT], tmp_path, ray=address)


@pytest.mark.ray
@pytest.mark.slow
def test_the_command_starts_a_cluster_of_its_own_and_prints_only_records(ray: Any, tmp_path: Path) -> None:
    line = f"run tent digits --images 20 --batch-size 20 --seed 0,1 --ray=local --json --out {tmp_path}"
    command = [sys.executable, "-c", "from ctta.cli import main; main()", *shlex.split(line)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert [record["spec"]["seed"] for record in json.loads(ended.stdout)] == [0, 1]
    *runs, size, warning = ended.stderr.splitlines()
    assert sorted(line.split(":")[0][4:] for line in runs) == ["tent seed 0", "tent seed 1"]
    assert size.startswith("15 domains x 20 images") and warning.startswith("FEW STEPS")


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ctta\[ray\]'"):
        run_jobs([SHORT], tmp_path, ray="")


def test_a_cluster_has_its_own_number_of_workers(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="leave out --workers"):
        run_jobs([SHORT], tmp_path, ray="", workers=2)
