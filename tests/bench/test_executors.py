"""Executors: every executor returns the same records in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ctta.bench.executors import Executor, Serial, Threads, run_tasks
from ctta.bench.record import Record
from ctta.errors import ParameterError
from jobs import make_job
from running import numbers

pytestmark = pytest.mark.usefixtures("one_thread")

JOB = make_job("tent", "digits", "digits_resnet8", corruptions=("fog",), images=20, batch_size=10)
JOBS = [JOB.with_seed(seed) for seed in range(3)]


class Display:
    def __init__(self) -> None:
        self.steps = 0
        self.seeds: list[int] = []

    def started(self, adapter: object, steps: int) -> Any:
        def step(batch: object, log: object) -> None:
            self.steps += 1

        return step

    def finished(self, record: Record) -> None:
        self.seeds.append(record.spec.seed)


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_threads_give_the_records_of_one_after_the_other(tmp_path: Path, two_threads: None) -> None:
    display = Display()
    together = run_tasks(Threads(), JOBS, tmp_path / "together", progress=display)
    assert torch.get_num_threads() == 2
    assert display.steps == 3 * 2 and sorted(display.seeds) == [0, 1, 2]
    torch.set_num_threads(1)
    alone = run_tasks(Serial(), JOBS, tmp_path / "alone")
    assert [record.spec.seed for record in together] == [record.spec.seed for record in alone] == [0, 1, 2]
    for one, other in zip(alone, together, strict=True):
        assert numbers(one, tmp_path / "alone") == numbers(other, tmp_path / "together")


def test_a_finished_run_is_reported_without_steps(tmp_path: Path) -> None:
    first, again = Display(), Display()
    assert run_tasks(Serial(), JOBS[:1], tmp_path, progress=first) == run_tasks(
        Threads(), JOBS[:1], tmp_path, progress=again
    )
    assert (first.steps, again.steps) == (2, 0) and first.seeds == again.seeds == [0]


@pytest.mark.parametrize("executor", [Serial(), Threads()])
def test_the_error_of_a_run_is_raised_and_stops_the_others(tmp_path: Path, executor: Executor[Any]) -> None:
    class Failing:
        def execute(self, folder: Path, **how: Any) -> Record:
            raise ParameterError("no run")

    class Endless:
        def execute(self, folder: Path, *, save_every: float, progress: Any) -> Record:
            step = progress(None, 1)
            while True:
                step(None, {})

    display = Display()
    with pytest.raises(ParameterError, match="no run"):
        run_tasks(executor, [Failing(), Endless()], tmp_path, progress=display)
    assert display.seeds == []
