"""Measure the peak of live tensor memory while an adapter is built and takes two steps.

The count is exact and repeatable: it adds up the allocations and frees that torch's profiler records, and so excludes
the interpreter, memory reserved by the C library and oneDNN's scratch space. The user's images and source network are
not counted. Plain training is forward, backward and an optimizer step on a copy of that network.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.subjects import Subject
from ctta.methods import DMSE

TRAINING, BOTH, RECOMPUTE = "plain training", "plain training, twice the batch", "dmse, recompute"
#: Methods of a quick look.
QUICK = ("tent", "cotta", "dmse", "trio")
MIB = 2**20


class Bytes(NamedTuple):
    """Live tensor memory in bytes: the peak, and what is left at the end."""

    peak: int
    left: int


def live_bytes(work: Callable[[], object]) -> Bytes:
    """Measure the tensor memory that a function allocates; its return value counts as left."""
    gc.collect()
    frozen_before = gc.get_freeze_count() > 0
    gc.freeze()  # the collections below look at new objects only
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            kept = work()
            gc.collect()
    finally:
        if not frozen_before:
            gc.unfreeze()
    assert profiler.profiler is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    totals = list(accumulate((event.nbytes() for event in events), initial=0))
    del kept
    return Bytes(max(totals), totals[-1])


def measure(plan: Plan) -> list[Report]:
    """Measure every network, in one round because the count is exact."""
    return [report for subject in plan.subjects for report in _peaks(subject, quick=plan.quick)]


def _peaks(subject: Subject, *, quick: bool) -> list[Report]:
    """Compare the peaks of methods with plain training, and what DMSE adds with what it is allowed to add."""
    found = {TRAINING: _trained(subject, 1), BOTH: _trained(subject, 2)}
    names = QUICK if quick else subject.methods
    found |= {name: _stepped(subject, name) for name in names}
    found[RECOMPUTE] = _stepped(subject, "dmse", recompute=True)
    rows = [
        Row(name, peak / MIB, {"/ training": peak / found[TRAINING].peak, "held MiB": left / MIB})
        for name, (peak, left) in found.items()
    ]
    model = subject.model()
    allowed = 2 * sum(p.nbytes for p in model.parameters()) + 2 * model.weight.nbytes
    beyond = [
        Row(name, (found[ours].peak - found[base].peak) / allowed, {"allowed MiB": allowed / MIB})
        for name, ours, base in (
            ("beyond training on the batch", "dmse", TRAINING),
            ("beyond training on the batch, recompute", RECOMPUTE, TRAINING),
            ("beyond training on the batch and its view", "dmse", BOTH),
        )
    ]
    return [
        Report(f"memory: {subject.title}", "peak MiB", rows),
        Report(f"memory: DMSE beyond training, {subject.title}", "/ allowed", beyond),
    ]


def _stepped(subject: Subject, name: str, **options: Any) -> Bytes:
    x = subject.images()

    def work() -> nn.Module:
        adapter = subject.adapter(name, **options)
        gc.collect()  # frees the user's network, which the adapter has copied
        for _ in range(2):
            adapter(x)
        return adapter

    return live_bytes(work)


def _trained(subject: Subject, copies: int) -> Bytes:
    model, x = subject.model(), torch.cat([subject.images()] * copies)
    y = torch.zeros(len(x), dtype=torch.long)
    recipe = DMSE.recipe(subject.recipe)

    def work() -> tuple[nn.Module, Any]:
        net = copy.deepcopy(model).train()
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        lr = recipe["lr"]
        optimizer: torch.optim.Optimizer
        if recipe["optimizer"] == "adam":
            optimizer = torch.optim.Adam(net.parameters(), lr=lr, foreach=True)
        else:
            optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, foreach=True)
        for _ in range(2):
            _train_once(net, optimizer, x, y)
        return net, optimizer

    return live_bytes(work)


def _train_once(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    F.cross_entropy(net(x.to(memory_format=torch.channels_last)), y).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
