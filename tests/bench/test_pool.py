"""Runs in several processes at once: stopped, killed and lost, they end with the numbers of runs that were let be."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ctta.bench.executors import run_jobs
from ctta.bench.folder import RunFolder
from ctta.errors import ConcurrentUse, ParameterError, WorkerLost
from jobs import make_job
from running import numbers, wait_for

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks its processes up in /proc, which only Linux has"),
    pytest.mark.usefixtures("one_thread"),
]

STEPS = 150
JOB = make_job("tent", "digits", "digits_resnet8", corruptions=("fog", "contrast"), images=375, batch_size=5)
JOBS = [JOB.with_seed(seed) for seed in range(3)]
LINE = "run tent digits --corruptions fog,contrast --images 375 --batch-size 5 --seed 0..2 --workers 2"


@pytest.fixture(scope="module")
def whole(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the jobs give one by one in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return all_numbers(folder)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has two others do the jobs; all are in a group of their own."""
    # A script in the background, which the tests may be run by, has Ctrl-C ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; from ctta.cli import main; main()", *shlex.split(LINE)]
    command += ["--save-every", "3600", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def all_numbers(folder: Path) -> Any:
    """The numbers of the jobs, run or found in a folder."""
    return [numbers(record, folder) for record in run_jobs(JOBS, folder)]


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


def run_of(worker: int) -> Path | None:
    """The run that a worker is at, if it has logged steps: some twenty at once, when a buffer is full."""
    for link in Path(f"/proc/{worker}/fd").iterdir():
        with suppress(OSError):
            if (lock := link.readlink()).name == "lock" and lines_of(lock.parent):
                return lock.parent
    return None


def hold(parent: int) -> dict[int, Path]:
    """Make two workers stand still, each in the middle of a run; those runs."""
    workers = wait_for(lambda: len(found := workers_of(parent)) == 2 and found)
    held: dict[int, Path] = {}

    def hold_another() -> bool:
        for worker in workers:
            if worker in held or run_of(worker) is None:
                continue
            os.kill(worker, signal.SIGSTOP)
            wait_for(lambda worker=worker: (worker, "T") in [process[:2] for process in processes()])
            run = run_of(worker)
            # Up to twenty more steps are in the buffer of the log.
            if run is not None and len(lines_of(run)) < STEPS - 50:
                held[worker] = run
            else:
                os.kill(worker, signal.SIGCONT)
        return len(held) == 2

    wait_for(hold_another)
    return held


def let_go(workers: Iterable[int]) -> None:
    for worker in workers:
        os.kill(worker, signal.SIGCONT)


def asked_to_end(worker: int) -> bool:
    """Whether SIGTERM waits for a worker that stands still."""
    status = Path(f"/proc/{worker}/status").read_text()
    [pending] = [line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd")]
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


def output_at_the_end(parent: subprocess.Popen[str]) -> str:
    """What was said on stderr, once no process is left."""
    _, told = parent.communicate(timeout=120)
    wait_for(lambda: all(session != parent.pid for *_, session in processes()))
    return told


def check_saved(runs: Iterable[Path], folder: Path, whole: Any) -> None:
    """Every run has a checkpoint of its last step, and goes on from there."""
    saved = {run: lines_of(run) for run in runs}
    for run, lines in saved.items():
        assert [path.name for path in run.glob("step-*.ctta")] == [f"step-{len(lines):08d}.ctta"]
        assert 0 < len(lines) < STEPS
    assert all_numbers(folder) == whole
    # A step that was made again would have taken another time.
    assert all(lines_of(run)[: len(lines)] == lines for run, lines in saved.items())


@pytest.mark.slow
@pytest.mark.parametrize(("signalled", "how"), [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)])
def test_ctrl_c_with_workers_saves_every_run_and_leaves_no_process(
    parent: subprocess.Popen[str], tmp_path: Path, whole: Any, signalled: Callable[..., None], how: signal.Signals
) -> None:
    runs = hold(parent.pid)
    begun = set(tmp_path.iterdir())
    signalled(parent.pid, how)
    wait_for(lambda: all(map(asked_to_end, runs)))
    let_go(runs)
    assert "Traceback" not in output_at_the_end(parent) and parent.returncode > 0
    assert set(tmp_path.iterdir()) == begun
    check_saved(runs.values(), tmp_path, whole)


@pytest.mark.slow
def test_ctrl_c_again_does_not_wait_for_the_workers(parent: subprocess.Popen[str]) -> None:
    runs = hold(parent.pid)
    os.killpg(parent.pid, signal.SIGINT)
    wait_for(lambda: all(map(asked_to_end, runs)))
    # The workers stand still: they cannot end by themselves.
    os.killpg(parent.pid, signal.SIGINT)
    assert "Traceback" not in output_at_the_end(parent) and parent.returncode > 0


@pytest.mark.slow
def test_workers_save_and_end_when_their_parent_is_killed(
    parent: subprocess.Popen[str], tmp_path: Path, whole: Any
) -> None:
    runs = hold(parent.pid)
    begun = set(tmp_path.iterdir())
    parent.kill()
    parent.wait()
    let_go(runs)
    assert "Traceback" not in output_at_the_end(parent)
    assert set(tmp_path.iterdir()) == begun
    check_saved(runs.values(), tmp_path, whole)


def test_a_worker_that_is_killed_is_named(tmp_path: Path) -> None:
    def kill() -> None:
        os.kill(wait_for(lambda: workers_of(os.getpid()))[0], signal.SIGKILL)

    with ThreadPoolExecutor(1) as pool, pytest.raises(WorkerLost, match=r"tent with seed \d is gone \(exit code -9"):
        killed = pool.submit(kill)
        run_jobs(JOBS, tmp_path, workers=2)
    killed.result()
    assert not workers_of(os.getpid())


def test_there_must_be_a_worker(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="at least one worker"):
        run_jobs(JOBS, tmp_path, workers=0)


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
