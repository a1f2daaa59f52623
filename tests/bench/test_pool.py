"""Runs in several processes at once: stopped, killed or lost, they end with the numbers of uninterrupted runs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from ctta.bench.executors import run_jobs
from ctta.bench.folder import RunFolder, read_records
from ctta.bench.jobs import Job
from ctta.cli import app
from ctta.errors import ConcurrentUse, ParameterError, UserCodeError, WorkerLost
from jobs import make_job
from running import numbers, wait_for

pytestmark = [
    pytest.mark.trial,
    pytest.mark.skipif(sys.platform != "linux", reason="looks its processes up in /proc, which only Linux has"),
    pytest.mark.usefixtures("one_thread"),
]

CODE = """
import os, signal
import torch
from torch import nn
import ctta

def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    )

class Halting(ctta.BNEMA):
    '''A method with a state whose process stands still in the middle of a run, where HALT is set.'''
    def adapt(self, x):
        if self.steps == 10 and "HALT" in os.environ:
            os.kill(os.getpid(), signal.SIGSTOP)
        return (yield from super().adapt(x))
"""
STEPS = 24
OPTIONS = "--corruptions fog,contrast --images 60 --batch-size 5 --workers 2 --save-every 3600"


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A method that holds the workers of ``parent``, and is like any other in this process; and a model.

    It has no optimizer: building the first one of a process takes torch as long as its own import.
    """
    file = tmp_path_factory.mktemp("code") / "halting.py"
    file.write_text(CODE)
    return file


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that a worker reads without importing scikit-learn, as it would for the digits."""
    x = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("data") / "clean.npz"
    np.savez(path, x=x, y=np.arange(60) % 10)
    return path


@pytest.fixture(scope="module")
def jobs(code: Path, images: Path) -> list[Job]:
    """The jobs of ``line``."""
    size = {"corruptions": ("fog", "contrast"), "images": 60, "batch_size": 5}
    job = make_job(f"{code}:Halting", "cifar10-c", f"{code}:build", data=images, **size)
    return [job.with_seed(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def whole(one_thread: None, jobs: list[Job], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of the jobs run one by one in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return all_numbers(jobs, folder)


@pytest.fixture(scope="module")
def line(code: Path, images: Path) -> list[str]:
    """The command that runs the jobs in two workers."""
    own = [f"{code}:Halting", "cifar10-c", "--model", f"{code}:build", "--data", str(images)]
    return ["run", *own, *OPTIONS.split()]


THREE_SEEDS = ("--seed", "0..2")
one_job = pytest.mark.parametrize("seeds", [("--seed", "0")], ids=["one job"])


@pytest.fixture
def seeds() -> tuple[str, str]:
    """The seeds of ``parent``: three jobs for two workers."""
    return THREE_SEEDS


@pytest.fixture
def parent(line: list[str], seeds: tuple[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the jobs in two workers, or one job in one, all in a new process group."""
    # Tests may run in a background script, for which Ctrl-C is ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{heard}; from ctta.cli import main; main()", *line, *seeds, "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"HALT": "1"},
    )
    with process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def all_numbers(jobs: list[Job], folder: Path) -> Any:
    """The numbers of the jobs, run or found in a folder."""
    return [numbers(record, folder) for record in run_jobs(jobs, folder)]


def lines_of(run: Path) -> list[str]:
    return (run / "steps.jsonl").read_text().splitlines()


def processes() -> Iterator[tuple[int, str, int, int]]:
    """Number, state, parent and session of all processes that have not ended."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, above, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX":
                yield int(stat.parent.name), state, int(above), int(session)


def workers_of(parent: int) -> list[int]:
    found = []
    for number, _, above, _ in processes():
        with suppress(OSError):
            if above == parent and b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(number)
    return found


def run_of(worker: int) -> Path:
    """The run that a worker is working on."""
    for link in Path(f"/proc/{worker}/fd").iterdir():
        with suppress(OSError):
            if (lock := link.readlink()).name == "lock":
                return lock.parent
    raise AssertionError(f"worker {worker} is at no run")


def hold(parent: int, workers: int = 2) -> dict[int, Path]:
    """Wait until all workers are paused, each in the middle of a run; return those runs."""

    def held() -> list[int]:
        found = [number for number, state, above, _ in processes() if above == parent and state == "T"]
        return found if len(found) == workers else []

    return {worker: run_of(worker) for worker in wait_for(held, every=0.1)}


def let_go(workers: Iterable[int]) -> None:
    for worker in workers:
        os.kill(worker, signal.SIGCONT)


def asked_to_end(worker: int) -> bool:
    """Whether SIGTERM is pending for a paused worker."""
    status = Path(f"/proc/{worker}/status").read_text()
    [pending] = [line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd")]
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


def output_at_the_end(parent: subprocess.Popen[str]) -> str:
    """The output on stderr, once no process is left."""
    _, told = parent.communicate(timeout=120)
    wait_for(lambda: all(session != parent.pid for *_, session in processes()), every=0.1)
    return told


def check_saved(runs: Iterable[Path], folder: Path, jobs: list[Job], whole: Any) -> None:
    """Every run has a checkpoint of its last step, and resumes from there."""
    saved = {run: lines_of(run) for run in runs}
    for run, lines in saved.items():
        assert [path.name for path in run.glob("step-*.ctta")] == [f"step-{len(lines):08d}.ctta"]
        assert 0 < len(lines) < STEPS
    assert all_numbers(jobs, folder) == whole
    # A repeated step would have a different duration.
    assert all(lines_of(run)[: len(lines)] == lines for run, lines in saved.items())


@pytest.mark.slow
def test_workers_give_the_numbers_events_and_messages_of_one_process(
    line: list[str], jobs: list[Job], tmp_path: Path, whole: Any
) -> None:
    runs, events = tmp_path / "runs", tmp_path / "events"
    [done] = run_jobs(jobs[:1], runs)
    result = CliRunner().invoke(app, [*line, *THREE_SEEDS, "--out", str(runs), "--tensorboard", str(events)])
    assert result.exit_code == 0, result.output
    assert f"already done, {runs / done.address / 'record.json'}" in result.stderr.splitlines()
    assert result.stderr.count("already done") == 1
    records = sorted(read_records(runs), key=lambda record: record.spec.seed)
    assert [numbers(record, runs) for record in records] == whole
    for record in records:
        [run] = events.glob(f"*_seed={record.spec.seed}_{record.address[:8]}")
        logged = EventAccumulator(str(run)).Reload().Scalars("step/error")
        assert [scalar.step for scalar in logged] == list(range(STEPS))


@pytest.mark.slow
def test_ctrl_c_with_workers_saves_every_run_and_leaves_no_process(
    parent: subprocess.Popen[str], tmp_path: Path, jobs: list[Job], whole: Any
) -> None:
    runs = hold(parent.pid)
    begun = set(tmp_path.iterdir())
    os.killpg(parent.pid, signal.SIGINT)
    wait_for(lambda: all(map(asked_to_end, runs)))
    let_go(runs)
    assert "Traceback" not in output_at_the_end(parent) and parent.returncode > 0
    assert set(tmp_path.iterdir()) == begun
    check_saved(runs.values(), tmp_path, jobs, whole)


# The tests below are about what a parent asks of each of its workers: one worker shows it.


@pytest.mark.slow
@one_job
def test_a_parent_that_is_terminated_saves_its_run_and_leaves_no_process(
    parent: subprocess.Popen[str], tmp_path: Path, jobs: list[Job], whole: Any
) -> None:
    runs = hold(parent.pid, workers=1)
    begun = set(tmp_path.iterdir())
    os.kill(parent.pid, signal.SIGTERM)
    wait_for(lambda: all(map(asked_to_end, runs)))
    let_go(runs)
    assert "Traceback" not in output_at_the_end(parent) and parent.returncode > 0
    assert set(tmp_path.iterdir()) == begun
    check_saved(runs.values(), tmp_path, jobs[:1], whole[:1])


@pytest.mark.slow
@one_job
def test_ctrl_c_again_does_not_wait_for_the_workers(parent: subprocess.Popen[str]) -> None:
    runs = hold(parent.pid, workers=1)
    os.killpg(parent.pid, signal.SIGINT)
    wait_for(lambda: all(map(asked_to_end, runs)))
    # The worker is paused: it cannot end by itself.
    os.killpg(parent.pid, signal.SIGINT)
    assert "Traceback" not in output_at_the_end(parent) and parent.returncode > 0


@pytest.mark.slow
@one_job
def test_a_worker_saves_and_ends_when_its_parent_is_killed(
    parent: subprocess.Popen[str], tmp_path: Path, jobs: list[Job], whole: Any
) -> None:
    runs = hold(parent.pid, workers=1)
    begun = set(tmp_path.iterdir())
    parent.kill()
    parent.wait()
    let_go(runs)
    assert "Traceback" not in output_at_the_end(parent)
    assert set(tmp_path.iterdir()) == begun
    check_saved(runs.values(), tmp_path, jobs[:1], whole[:1])


def test_a_worker_that_is_killed_is_named(jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALT", "1")  # in the worker: this process takes no step
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(WorkerLost, match=r"Halting with seed 0 is gone \(exit code -9"),
    ):
        held = pool.submit(hold, os.getpid(), workers=1)
        held.add_done_callback(lambda done: [os.kill(worker, signal.SIGKILL) for worker in done.result()])
        run_jobs(jobs[:1], tmp_path, workers=2)
    assert not workers_of(os.getpid())


def test_there_must_be_a_worker(jobs: list[Job], tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="at least one worker"):
        run_jobs(jobs, tmp_path, workers=0)


def test_a_lock_that_is_removed_before_it_is_taken_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def late(file: Any, how: int) -> None:
        monkeypatch.undo()
        (tmp_path / "lock").unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with RunFolder(tmp_path).lock():
        assert fcntl.flock is not late
        with pytest.raises(ConcurrentUse), RunFolder(tmp_path).lock():
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_until_its_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def look(path: Path, missing_ok: bool = False) -> None:
        with pytest.raises(ConcurrentUse), RunFolder(tmp_path).lock():
            pass
        unlink(path, missing_ok=missing_ok)

    with RunFolder(tmp_path).lock():
        monkeypatch.setattr(Path, "unlink", look)
    assert list(tmp_path.iterdir()) == []


def test_equal_jobs_run_once_and_both_get_the_record(tmp_path: Path) -> None:
    job = make_job("bn", "digits", "digits_resnet8", corruptions=("fog",), images=200, batch_size=5)
    first, second = run_jobs([job, job], tmp_path, workers=2)
    assert first == second and len(read_records(tmp_path)) == 1


def test_an_error_that_cannot_be_sent_to_another_process_is_told_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("""
import ctta

class Two(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

class Failing(ctta.BN):
    def adapt(self, x):
        raise Two("this", "that")
""")
    job = make_job(f"{tmp_path}/failing.py:Failing", "digits", "digits_resnet8", images=20, batch_size=10)
    with pytest.raises(UserCodeError, match="Two: this and that"):
        run_jobs([job, job.with_seed(1)], tmp_path / "runs", workers=2)
