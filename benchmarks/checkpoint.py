"""Time saving and loading an adapter, against torch.save and torch.load of the same state."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import torch

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.subjects import Subject
from benchmarks.timing import Work, interleave
from ctta.methods import DMSE


def measure(plan: Plan) -> list[Report]:
    """Measure DMSE on every network."""
    return [_files(subject, plan.rounds) for subject in plan.subjects]


def _files(subject: Subject, rounds: int) -> Report:
    model = subject.model()
    adapter = DMSE(model, **DMSE.recipe(subject.recipe))
    adapter(subject.images()[:2])
    with tempfile.TemporaryDirectory() as folder:
        ours, plain = Path(folder, "adapter.safetensors"), Path(folder, "state.pt")
        works: dict[str, Work] = {
            "torch.save": lambda: torch.save(adapter.state_dict(), plain),
            "save": partial(adapter.save, ours),
            "torch.load": partial(torch.load, plain, weights_only=True),
            "load": partial(DMSE.load, ours, model),
        }
        times = interleave(works, rounds)
        size = ours.stat().st_size / 2**20
    rows = []
    for name in ("save", "load"):
        ratio, median = times.ratio(name, f"torch.{name}"), times.median(name)
        rows.append(Row(name, median.wall, {"CPU s": median.cpu, f"CPU / torch.{name}": ratio.cpu, "file MiB": size}))
    return Report(f"checkpoint: DMSE, {subject.title}", "wall s", rows)
