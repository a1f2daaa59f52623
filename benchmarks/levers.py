"""Time the same work with and without each optimisation ("lever"); a ratio below 1 means that it helps."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.plan import Plan
from benchmarks.report import Report, Row
from benchmarks.straightforward import full_size_view, nearest_prototype, symmetric_cross_entropy
from benchmarks.subjects import RESNET20, RESNET50, TINY, Subject
from benchmarks.timing import Work, interleave
from ctta import functional
from ctta.augment import View
from ctta.methods._parts.restore import successes
from ctta.norms import use_batch_statistics
from ctta.teacher import assign_at_, ema_

Pair = tuple[Work, Work]  # with the lever, without it


def measure(plan: Plan) -> list[Report]:
    """Measure the levers in this process, and the allocator in fresh processes."""
    small, large = (TINY, TINY) if plan.quick else (RESNET20, RESNET50)
    pairs = {
        "channels_last: forward": _layout(small, _forward),
        "channels_last: forward and backward": _layout(small, _forward_and_backward),
        f"cropped, fused view: {small.side} px": _view(small),
        f"cropped, fused view: {large.side} px": _view(large),
        "foreach average": _average(large),
        "foreach Adam": _adam(large, {"foreach": True}, {"foreach": False}),
        "fused Adam (not taken)": _adam(large, {"fused": True}, {"foreach": True}),
        "prototypes by one product": _prototypes(*((8, 16, 20) if plan.quick else (64, 2048, 1000))),
        "one log-softmax per logits": _losses(*((8, 20) if plan.quick else (64, 1000))),
        "restoring by gaps": _restore(large),
        "DMSE, recompute: time": _recompute(small),
    }
    works = {f"{name} {i}": work for name, pair in pairs.items() for i, work in enumerate(pair)}
    times = interleave(works, plan.rounds)
    rows = []
    for name in pairs:
        ratio = times.ratio(f"{name} 0", f"{name} 1")
        ours, plain = (1e3 * times.median(f"{name} {i}").cpu for i in (0, 1))
        rows.append(Row(name, ratio.cpu, {"by wall": ratio.wall, "ms": ours, "ms without": plain}))
    return [Report("levers", "with / without", rows), _allocator("TINY" if plan.quick else "RESNET20", plan)]


def _layout(subject: Subject, work: Callable[[nn.Module, Tensor], object]) -> Pair:
    model, x = subject.model(), subject.images()
    use_batch_statistics(model)
    last = copy.deepcopy(model)
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return partial(work, last, x.to(memory_format=torch.channels_last)), partial(work, model, x)


def _recompute(subject: Subject) -> Pair:
    x = subject.images()
    return partial(subject.adapter("dmse", recompute=True), x), partial(subject.adapter("dmse"), x)


@torch.no_grad()
def _forward(model: nn.Module, x: Tensor) -> None:
    model(x)


def _forward_and_backward(model: nn.Module, x: Tensor) -> None:
    functional.entropy(model(x)).mean().backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)


def _view(subject: Subject) -> Pair:
    x, generator = subject.images(), torch.Generator()
    # The same random numbers on both sides, and new ones in each round.
    seeds = (iter(range(10**6)), iter(range(10**6)))
    views = (View(), full_size_view)
    ours, plain = (lambda v=v, s=s: v(x, generator.manual_seed(next(s))) for v, s in zip(views, seeds, strict=True))
    return ours, plain


def _average(subject: Subject) -> Pair:
    student, teacher = subject.model(), subject.model()

    @torch.no_grad()
    def loop() -> None:
        for average, parameter in zip(teacher.parameters(), student.parameters(), strict=True):
            average.data[:] = 0.99 * average.data[:] + 0.01 * parameter.data[:]

    return partial(ema_, teacher, student, 0.99), loop


def _channels_last(subject: Subject) -> list[nn.Parameter]:
    model = subject.model()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return list(model.parameters())


def _adam(subject: Subject, ours: dict[str, Any], other: dict[str, Any]) -> Pair:
    optimizers = []
    for kind in (ours, other):
        parameters = _channels_last(subject)
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 1e-3)
        optimizers.append(torch.optim.Adam(parameters, **kind))
    return optimizers[0].step, optimizers[1].step


def _prototypes(n: int, features: int, classes: int) -> Pair:
    g, p = torch.randn(n, features), torch.randn(classes, features)
    return partial(functional.nearest_prototype, g, p), partial(nearest_prototype, g, p)


def _losses(n: int, classes: int) -> Pair:
    logits, target = torch.randn(n, classes), torch.randn(n, classes)
    return partial(functional.symmetric_cross_entropy, logits, target), partial(symmetric_cross_entropy, logits, target)


def _restore(subject: Subject, p: float = 0.001) -> Pair:
    parameters = [p.detach() for p in _channels_last(subject)]
    source = [p.clone() for p in parameters]
    generator = torch.Generator().manual_seed(0)

    def gaps() -> None:
        for parameter, value in zip(parameters, source, strict=True):
            assign_at_(parameter, value, successes(parameter.numel(), p, generator))

    def masks() -> None:
        for parameter, value in zip(parameters, source, strict=True):
            mask = torch.rand(parameter.shape, generator=generator) < p
            parameter.copy_(torch.where(mask, value, parameter))

    return gaps, masks


_ROOT = Path(__file__).parents[1]
_CHILD = """
import sys
from ctta._system.allocator import keep_freed_memory
kept = sys.argv[1] == "kept" and keep_freed_memory()
import torch
from benchmarks import subjects
from benchmarks.timing import interleave
subject = getattr(subjects, sys.argv[2])
x, model, adapter = subject.images(), torch.no_grad()(subject.model()), subject.adapter("dmse")
times = interleave({"forward": lambda: model(x), "dmse": lambda: adapter(x)}, int(sys.argv[3]))
print(times.median("forward").cpu, times.median("dmse").cpu)
"""


def _allocator(subject: str, plan: Plan) -> Report:
    """Time fresh processes, alternating between the default allocator and one that keeps freed memory."""
    found: dict[str, list[list[float]]] = {"kept": [], "default": []}
    for _ in range(1 if plan.quick else 3):
        for name, runs in found.items():
            code = [sys.executable, "-c", _CHILD, name, subject, str(plan.rounds)]
            runs.append([float(v) for v in subprocess.check_output(code, text=True, cwd=_ROOT).split()])
    rows = []
    for i, name in enumerate(("forward", "dmse")):
        kept, default = (median(run[i] for run in found[which]) for which in ("kept", "default"))
        rows.append(Row(name, kept / default, {"CPU s": kept, "CPU s without": default}))
    return Report("levers: keep_freed_memory", "with / without", rows)
