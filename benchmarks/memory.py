"""Peak memory of two steps of every method, from the loaded network on, beside plain training of the same network."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks.options import Options
from benchmarks.report import Row
from benchmarks.tensors import peak_bytes
from benchmarks.workloads import Workload, forward, method_names, workloads
from ctta import DMSE

STEPS = 2


def measure(options: Options) -> list[Row]:
    rows = []
    for workload in workloads(options):
        prefix = f"memory/{workload.name}/fp32"
        plain = _megabytes(lambda w=workload: _forward(w))
        one, two = (_megabytes(lambda w=workload, n=passes: _training(w, n)) for passes in (1, 2))
        rows += [
            Row(f"{prefix}/plain forward", plain, "MB"),
            Row(f"{prefix}/plain training", one, "MB"),
            Row(f"{prefix}/plain training, two passes", two, "MB"),
        ]
        for name in method_names(options):
            used = _megabytes(lambda w=workload, n=name: _adapting(w, n))
            rows.append(Row(f"{prefix}/{name}", used, "MB", {"of training": used / one}))
            if name == "dmse":
                allowed = _allowed(workload)
                # DMSE differentiates the batch and its view together, so its like is training on two batches.
                beyond = {"MB": used - two, "allowed MB": allowed}
                rows.append(Row(f"{prefix}/dmse beyond training", (used - two) / allowed, "allowed", beyond))
    return rows


def _megabytes(work: Callable[[], object]) -> float:
    return peak_bytes(work) / 1e6


def _forward(workload: Workload) -> None:
    x, model = workload.batch(), workload.model()
    for _ in range(STEPS):
        forward(model, x)()


def _training(workload: Workload, passes: int) -> None:
    x, model = workload.batch(), workload.model().train().to(memory_format=torch.channels_last)
    model.requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    batches = [x.to(memory_format=torch.channels_last), *(x.flip(-1) for _ in range(passes - 1))]
    labels = torch.zeros(len(x), dtype=torch.long)
    for _ in range(STEPS):
        sum(F.cross_entropy(model(batch), labels) for batch in batches).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _adapting(workload: Workload, method: str) -> None:
    x, adapter = workload.batch(), workload.adapter(method)
    gc.collect()  # the user's network, which the adapter has copied
    for _ in range(STEPS):
        adapter(x)


def _allowed(workload: Workload) -> float:
    """Teacher, source copy and prototypes, in MB."""
    adapter = workload.adapter("dmse")
    assert isinstance(adapter, DMSE)
    network = sum(p.nbytes for p in adapter.student.parameters())
    projection = sum(p.nbytes for p in adapter.project.parameters())
    # The source copy holds all that a reset must give back: network, projection (which learns with Adam's two moments
    # and a gradient) and p_0; p_0 and p_t are the prototypes.
    return (2 * network + 5 * projection + 3 * adapter.p_0.nbytes) / 1e6
