"""Measure what `ctta.keep_freed_memory()` gains: `python -m benchmarks.freed_memory --help`.

The setting is one of a whole process, so processes with and without it take turns. Each prints the median CPU time of a
step of Tent with EfficientNet-Lite0.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial
from statistics import median

import torch

import ctta
from benchmarks.timing import interleave
from ctta.nets import build


def seconds_of_step(images: int, side: int, steps: int) -> float:
    """Return the median CPU time of a step on random images, after one to warm up."""
    torch.set_num_threads(1)
    adapter = ctta.Tent(build("imagenet_efficientnet_lite0"))
    step = partial(adapter.step, torch.rand(images, 3, side, side))
    return interleave({"step": step}, steps).median("step").cpu


def main() -> None:
    """Measure in one process, or start the processes and print what they measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freed_memory", description=__doc__)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=["kept", "given back"], help="measure in this process only")
    args = parser.parse_args()
    if args.one is not None:
        if args.one == "kept" and not ctta.keep_freed_memory():
            raise SystemExit("This C library cannot keep freed memory.")
        print(seconds_of_step(args.images, args.side, args.steps))
        return
    sizes = [f"--images={args.images}", f"--side={args.side}", f"--steps={args.steps}"]
    found: dict[str, list[float]] = {"kept": [], "given back": []}
    for _ in range(args.rounds):
        for one, times in found.items():
            asked = [sys.executable, "-m", "benchmarks.freed_memory", *sizes, "--one", one]
            times.append(float(subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout))
    for one, times in found.items():
        print(f"{one}: " + ", ".join(f"{taken:.2f}" for taken in times) + " s")
    print(f"ratio of the medians: {median(found['kept']) / median(found['given back']):.2f}")


if __name__ == "__main__":
    main()
