"""Processes killed while they save: the file holds the state before or after, and the stream resumes from there."""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
from pathlib import Path

import torch

import ctta
from hostile.tally import Tally
from reference import net, stream
from saver import save_twice

LONG = 1000


def main(count: int, seed: int) -> None:
    """Kill ``count`` processes, each at a random line of writing a checkpoint; raise on a file that is not whole."""
    run(count, seed).report("kill_saves")


def run(count: int, seed: int) -> Tally:
    """The same, but return the tally."""
    torch.set_num_threads(1)
    tally, draw = Tally(), random.Random(seed)
    x, truth = stream(), ctta.DMSE(net(), seed=5)
    answers = [truth(x[0]), truth(x[1])]
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        lines = save_twice(str(Path(folder) / "whole.ctta"))
        for i in range(count):
            path = Path(folder) / str(i) / "a.ctta"
            process = context.Process(target=save_twice, args=(str(path), draw.randint(1, lines)))
            process.start()
            process.join()
            if process.exitcode != -9:
                tally.problem(f"process {i} ended with exit code {process.exitcode}")
                continue
            loaded = ctta.Adapter.load(path, net())
            steps = loaded.steps
            if torch.equal(loaded(x[steps]), answers[steps]):
                tally.saw("killed before the new state" if steps == 0 else "killed after the new state")
            else:
                tally.problem(f"the file of process {i} goes on with other logits from step {steps}")
    return tally


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LONG, seed=0)
