"""The service under load: `python -m benchmarks.serve`.

Clients send requests of 1 to 16 images to one stream. Three variants answer them in one run: "frozen" does not learn,
"after" replies when the learning is done, "split" replies first. Closed loop: every client waits for its answer before
it sends the next request. Open loop: requests arrive at random at a share of what "after" can do, whoever waits.
Then the memory that a further stream takes, as a share of the weights.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctta._adapter.answer import finish
from ctta._system.files import write_atomically
from ctta.adapter import Adapter, Step
from ctta.classifier import Classifier
from ctta.nets.cifar_resnet import CifarResNet
from ctta.registry import get_method
from ctta.serve.service import Service
from ctta.serve.types import Ask, Limits, Mode, Reply

VARIANTS = ("frozen", "after", "split")
LARGEST = 16


@dataclass(frozen=True)
class Load:
    """Latency in milliseconds and images per second of one variant under one load."""

    load: str
    variant: str
    p50: float
    p99: float
    images_per_second: float
    learnt: int
    shed: int


def measure(method: str, requests: int, clients: int, shares: tuple[float, ...]) -> list[Load]:
    """Every variant, closed loop and open loop at shares of the capacity of "after"."""
    found = [_closed(variant, method, requests, clients) for variant in VARIANTS]
    capacity = next(load.images_per_second for load in found if load.variant == "after")
    for share in shares:
        found += [_open(variant, method, requests, share, share * capacity) for variant in VARIANTS]
    return found


def memory(method: str) -> float:
    """Bytes that a further stream takes once it has learnt, as a share of the weights."""
    source = _source()
    with _Running(source, get_method(method), "adapt") as running:
        x = torch.rand(LARGEST, 3, 32, 32)
        for name in ("first", "second"):
            running.service.submit(Ask(name, x)).result()
            running.service.snapshot(name)
        before = _tensor_bytes()
        running.service.submit(Ask("third", x)).result()
        running.service.snapshot("third")
        return (_tensor_bytes() - before) / sum(p.nbytes for p in source.parameters())


class _Running:
    """A service of one variant, closed at the end."""

    def __init__(self, source: Classifier, make: Callable[[Classifier], Adapter], mode: Mode) -> None:
        limits = Limits(queue=100_000, learn_share=1.0)
        self.service = Service(source, make, name="bench", state=None, limits=limits, mode=mode)

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *exc: object) -> None:
        self.service.close()


def _source() -> Classifier:
    torch.manual_seed(0)
    return Classifier(CifarResNet(20, 10), mean=(0.5,) * 3, std=(0.25,) * 3)


def _variant(name: str, method: str) -> _Running:
    cls: Any = get_method(method)
    if name == "after":

        class After(cls):  # type: ignore[misc]
            """Learns before it answers."""

            def adapt(self, x: Tensor) -> Step:
                return finish(super().adapt(x))

        cls = After
    return _Running(_source(), cls, "frozen" if name == "frozen" else "adapt")


def _requests(count: int) -> list[Tensor]:
    sizes = random.Random(0)
    return [torch.rand(sizes.randint(1, LARGEST), 3, 32, 32) for _ in range(count)]


def _closed(variant: str, method: str, count: int, clients: int) -> Load:
    latencies: list[float] = []
    with _variant(variant, method) as running, ThreadPoolExecutor(clients) as pool:
        running.service.submit(Ask("cam", torch.rand(LARGEST, 3, 32, 32))).result()
        work = _requests(count)

        def send(x: Tensor) -> None:
            began = time.perf_counter()
            running.service.submit(Ask("cam", x)).result()
            latencies.append(time.perf_counter() - began)

        began = time.perf_counter()
        list(pool.map(send, work))
        return _load("closed loop", variant, running.service, latencies, work, time.perf_counter() - began)


def _open(variant: str, method: str, count: int, share: float, rate: float) -> Load:
    latencies: list[float] = []
    with _variant(variant, method) as running:
        running.service.submit(Ask("cam", torch.rand(LARGEST, 3, 32, 32))).result()
        work, gaps = _requests(count), random.Random(1)
        per_second = rate / (sum(map(len, work)) / len(work))
        done = threading.Semaphore(0)
        began = due = time.perf_counter()
        for x in work:
            due += gaps.expovariate(per_second)
            time.sleep(max(0.0, due - time.perf_counter()))

            def arrived(_: Future[Reply], sent: float = due) -> None:
                # From when the request was due: a late sender must not hide that others wait.
                latencies.append(time.perf_counter() - sent)
                done.release()

            running.service.submit(Ask("cam", x)).add_done_callback(arrived)
        for _ in work:
            done.acquire()
        return _load(f"{share:.0%} of capacity", variant, running.service, latencies, work, time.perf_counter() - began)


def _load(
    load: str, variant: str, service: Service, latencies: list[float], work: list[Tensor], seconds: float
) -> Load:
    ordered = sorted(1000 * latency for latency in latencies)
    status = service.stream("cam")
    return Load(
        load,
        variant,
        ordered[len(ordered) // 2],
        ordered[int(0.99 * (len(ordered) - 1))],
        sum(map(len, work)) / seconds,
        status.learnt,
        status.shed,
    )


def _tensor_bytes() -> int:
    gc.collect()
    storages = {}
    for found in gc.get_objects():
        if issubclass(type(found), Tensor):
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument("--method", default="dmse")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.3, 0.6])
    parser.add_argument("--memory-of", nargs="*", default=["tent", "dmse"])
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    loads = measure(args.method, args.requests, args.clients, tuple(args.shares)) if args.requests else []
    for load in loads:
        print(
            f"{load.load:18} {load.variant:7} p50 {load.p50:7.1f} ms, p99 {load.p99:7.1f} ms, "
            f"{load.images_per_second:6.1f} images/s, {load.learnt} batches learnt"
        )
    shares = {method: memory(method) for method in args.memory_of}
    for method, share in shares.items():
        print(f"memory of a further stream of {method}: {share:.3f} of the weights")
    if args.json is not None:
        content = {"loads": [asdict(load) for load in loads], "memory": shares}
        write_atomically(args.json, json.dumps(content, indent=1).encode())


if __name__ == "__main__":
    main()
