"""`ctta run` killed at random moments: it resumes and ends with the numbers of an uninterrupted run."""

from __future__ import annotations

import multiprocessing
import os
import random
import tempfile
import time
from pathlib import Path

import torch

import ctta.bench.executors  # noqa: F401
from ctta import nets
from ctta.bench.arguments import build_adapter
from ctta.bench.folder import read_record
from ctta.cli import app
from ctta.datasets.digits import digits
from hostile.tally import Tally
from jobs import make_job
from running import numbers

LONG = 200
METHODS = ("dmse", "tent", "rotta", "cotta", "eata", "rmt")
_SIZE = ("--corruptions", "fog,contrast,gaussian_noise", "--images", "20", "--batch-size", "5")


def run(count: int, seed: int) -> Tally:
    """Kill processes at work until ``count`` were killed; each run is resumed until it is done."""
    tally, draw = Tally(), random.Random(seed)
    # A forked process has imported everything, so it is killed while it works and not while it imports.
    torch.set_num_threads(1)
    digits()
    build_adapter(make_job("dmse", "digits", "digits_resnet8").work, nets.classifier("digits_resnet8"))
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        number = 0
        while tally.counts["killed"] < count:
            method = METHODS[number % len(METHODS)]
            words = ("run", method, "digits", *_SIZE, "--seed", str(number // len(METHODS)), "--quiet", "--json")
            number += 1
            alone, killed = root / f"alone{number}", root / f"killed{number}"
            begin = time.monotonic()
            process = context.Process(target=_command, args=(words, alone))
            process.start()
            process.join()
            took = time.monotonic() - begin
            if process.exitcode != 0:
                tally.problem(f"{method} does not run alone: exit code {process.exitcode}")
                return tally
            behind = 0
            while True:
                process = context.Process(target=_command, args=(words, killed))
                process.start()
                process.join(draw.uniform(0, took))
                process.kill()
                process.join()
                if process.exitcode == 0:
                    break
                if process.exitcode != -9:
                    tally.problem(f"{method} failed after {tally.counts['killed']} kills: {process.exitcode}")
                    return tally
                tally.saw("killed")
                reached = _reached(killed)
                if reached < behind:
                    tally.problem(f"{method} lost {behind - reached} steps")
                behind = reached
                if tally.counts["killed"] >= count:
                    process = context.Process(target=_command, args=(words, killed))
                    process.start()
                    process.join()
                    break
            _compare(tally, method, alone, killed)
    return tally


def _command(words: tuple[str, ...], out: Path) -> None:
    with Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), 1)
    app([*words, "--save-every", "0", "--out", str(out)], standalone_mode=False)


def _reached(folder: Path) -> int:
    """The number of steps before the newest checkpoint; a finished run has no checkpoint and counts in full."""
    records = [read_record(path) for path in folder.glob("*/record.json")]
    if any(record.complete for record in records):
        return 10**9
    return max((int(path.stem.removeprefix("step-")) for path in folder.glob("*/step-*.ctta")), default=0)


def _compare(tally: Tally, method: str, alone: Path, killed: Path) -> None:
    [expected], [found] = (list(folder.glob("*/record.json")) for folder in (alone, killed))
    if numbers(read_record(expected), alone) == numbers(read_record(found), killed):
        tally.saw("runs with equal numbers")
    else:
        tally.problem(f"{method} ended with other numbers")


def main(count: int, seed: int) -> None:
    run(count, seed).report("kill_runs")


if __name__ == "__main__":
    main(LONG, seed=0)
