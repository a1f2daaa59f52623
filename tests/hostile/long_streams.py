"""Long streams: the memory of every method is flat; `python -m hostile.long_streams tent sar` follows two of them."""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.registry import methods

#: How many steps the long form takes with each method.
LONG = 20_000

_IMAGES = 4
_STATM = Path("/proc/self/statm")
_PAGE = 4096

# A leak of one number a step would add 20,000 objects; of 1 kB a step, 15 MB after the warm-up.
MOST_OBJECTS = 500
MOST_RSS = 8 << 20

# An untrained network is never confident: the filters of EATA, RDumb, DeYO and SAR are opened, so that they learn.
SETTINGS: Mapping[str, dict[str, Any]] = {
    "eata": {"e_margin": 1.0, "d_margin": 1.0},
    "deyo": {"tau_ent": 1.0, "tau_plpd": -1.0},
    "sar": {"e_margin": 1.0, "reset_constant": 0.0},
    "cotta": {"views": 2},
    "rotta": {"memory_size": 16, "update_every": 8},
    "memo": {"views": 2},
    "note": {"memory_size": 16, "update_every": 8},
    "obao": {"buffer_size": 16, "replay": 8, "e_margin": 1.0},
    "petal": {"views": 2},
    "petta": {"memory_size": 16},
    "rdumb": {"e_margin": 1.0, "d_margin": 1.0, "reset_every": 150},
    "dmse": {"reset_by": "average"},
}


@dataclass(frozen=True)
class Use:
    """What is in memory after some steps."""

    tensor_bytes: int
    objects: int
    rss: int


def model(seed: int) -> nn.Module:
    """A network small enough for hundreds of steps a second."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            *(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
        ).eval()


def follow(adapter: Adapter, steps: int, seed: int, *, marks: int = 20) -> list[Use]:
    """Take steps on random images, and measure at equally spaced marks."""
    generator = torch.Generator().manual_seed(seed)
    batches = torch.rand(64, _IMAGES, 3, 8, 8, generator=generator)
    draw = random.Random(seed)
    every = max(1, steps // marks)
    uses = []
    for number in range(1, steps + 1):
        adapter.step(batches[draw.randrange(len(batches))])
        if number % every == 0:
            uses.append(measure(adapter))
    return uses


def learnt(adapter: Adapter) -> bool:
    """Whether a trained parameter differs from the source's. MEMO returns to the source after every image."""
    return getattr(adapter, "episodic", False) or any(
        not torch.equal(p, q) for p, q in zip(adapter.trained, adapter.source_of_trained(), strict=True)
    )


def measure(adapter: Adapter) -> Use:
    """Measure the adapter's tensors, Python's objects and the process."""
    gc.collect()
    held = sum(tensor.untyped_storage().nbytes() for tensor in _tensors(adapter.state_dict()))
    rss = int(_STATM.read_text().split()[1]) * _PAGE if _STATM.exists() else 0
    return Use(held, len(gc.get_objects()), rss)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def violations(name: str, uses: list[Use], *, with_rss: bool = True) -> list[str]:
    """Compare the second quarter of the marks, after the warm-up, with the last."""
    quarter = len(uses) // 4
    early, late = uses[quarter : 2 * quarter], uses[-quarter:]
    found = []
    if (growth := max(u.tensor_bytes for u in late) - max(u.tensor_bytes for u in early)) > 0:
        found.append(f"{name}: its tensors grew by {growth} bytes")
    if (growth := min(u.objects for u in late) - max(u.objects for u in early)) > MOST_OBJECTS:
        found.append(f"{name}: {growth} more Python objects")
    growth = int(statistics.median(u.rss for u in late) - statistics.median(u.rss for u in early))
    if with_rss and growth > MOST_RSS:
        found.append(f"{name}: the process grew by {growth / 1e6:.1f} MB")
    return found


def main(count: int, seed: int, names: Sequence[str] = ()) -> None:
    """Take `count` steps with every method, or with those named, and print what each held in the middle and last."""
    wrong = []
    for name in names or sorted(methods()):
        cls = methods()[name]
        began = time.monotonic()
        adapter = cls(model(seed), **SETTINGS.get(name, {}))
        uses = follow(adapter, count, seed)
        wrong += violations(name, uses)
        if cls.learns and not learnt(adapter):
            wrong.append(f"{name}: it learnt nothing, so that little was tried")
        middle, last = uses[len(uses) // 4], uses[-1]
        sys.stdout.write(
            f"long_streams: {name}: {count} steps in {time.monotonic() - began:.0f} s, "
            f"tensors {middle.tensor_bytes} to {last.tensor_bytes} bytes, "
            f"objects {middle.objects} to {last.objects}, "
            f"process {middle.rss / 1e6:.1f} to {last.rss / 1e6:.1f} MB\n"
        )
        sys.stdout.flush()
    if wrong:
        raise AssertionError("\n".join(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take many steps and watch the memory.")
    parser.add_argument("methods", nargs="*", help="default: all")
    parser.add_argument("--count", type=int, default=LONG, help="steps")
    asked = parser.parse_args()
    main(asked.count, seed=0, names=asked.methods)
