"""Measure the service under load: `python -m benchmarks.serve`.

Clients send requests of 1 to 16 images to one stream. Three variants serve them in one run: "frozen" does not learn,
"after" replies after learning, "split" replies before it learns. Closed loop: every client waits for its reply before
it sends the next request. Open loop: requests arrive at random at a share of the capacity of "after", even if others
are waiting. Every load lasts for the requested time, so the whole benchmark takes about ten times as long.
It then measures the memory of an additional stream, as a share of the weights: after its first step, and in the long
run, when its guard holds states to return to.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ctta._adapter.answer import finish
from ctta._system.files import write_atomically
from ctta.adapter import Adapter, Step
from ctta.classifier import Classifier
from ctta.guard import DEFAULT_RULES, Rule, parse_rules
from ctta.guarded import Guarded
from ctta.nets.cifar_resnet import CifarResNet
from ctta.registry import get_method
from ctta.serve.service import Service
from ctta.serve.types import Ask, Limits, Mode, Reply
from ctta.testing.models import bn_cnn

VARIANTS = ("frozen", "after", "split")
LARGEST = 16
#: Upper limit of the median latency of "split", as a share of that of "after".
TARGET = 0.5


@dataclass(frozen=True)
class Load:
    """Latency in milliseconds and images per second of one variant under one load."""

    load: str
    variant: str
    requests: int
    p50: float
    p99: float
    images_per_second: float
    learnt: int
    shed: int


@dataclass(frozen=True)
class Memory:
    """Memory of an additional stream, as a share of the weights."""

    method: str
    after_one_step: float
    in_the_long_run: float


class Bench:
    """Loads on services of one network and one method.

    Args:
        source: The source classifier.
        method: The method's name.
        seconds: Duration of every load, in seconds.
        clients: Concurrent clients in the closed loop.
    """

    def __init__(self, source: Classifier, method: str, seconds: float, clients: int) -> None:
        self._source = source
        self._method: Any = get_method(method)
        self._seconds = seconds
        self._clients = clients

    def measure(self, shares: tuple[float, ...]) -> Iterator[Load]:
        """Measure every variant, in a closed loop and then in an open loop at shares of the capacity of "after"."""
        capacity = 0.0
        for variant in VARIANTS:
            found = self._closed(variant)
            capacity = found.images_per_second if variant == "after" else capacity
            yield found
        for share, variant in itertools.product(shares, VARIANTS):
            yield self._open(variant, share, share * capacity)

    def _service(self, variant: str) -> Service:
        cls: Any = self._method
        if variant == "after":

            class After(cls):  # type: ignore[misc]
                """Learns before it replies."""

                def adapt(self, x: Tensor) -> Step:
                    return finish(super().adapt(x))

            cls = After
        service = _service(self._source, cls, "frozen" if variant == "frozen" else "adapt")
        service.submit(Ask("cam", torch.rand(LARGEST, 3, 32, 32))).result()
        service.snapshot("cam")  # after the first step, which creates buffers
        return service

    def _closed(self, variant: str) -> Load:
        service = self._service(variant)
        latencies: list[float] = []
        sizes: list[int] = []

        def client(seed: int) -> None:
            requests = _requests(seed)
            while time.perf_counter() < end:
                x = next(requests)
                began = time.perf_counter()
                service.submit(Ask("cam", x)).result()
                latencies.append(time.perf_counter() - began)
                sizes.append(len(x))

        began = time.perf_counter()
        end = began + self._seconds
        with ThreadPoolExecutor(self._clients) as pool:
            list(pool.map(client, range(self._clients)))
        return _load("closed loop", variant, service, latencies, sum(sizes), time.perf_counter() - began)

    def _open(self, variant: str, share: float, rate: float) -> Load:
        service = self._service(variant)
        latencies: list[float] = []
        answered = threading.Semaphore(0)
        requests, gaps = _requests(0), random.Random(1)
        per_second = rate / ((1 + LARGEST) / 2)
        count = max(1, round(per_second * self._seconds))
        images = 0
        began = due = time.perf_counter()
        for x in itertools.islice(requests, count):
            due += gaps.expovariate(per_second)
            time.sleep(max(0.0, due - time.perf_counter()))

            def arrived(_: Future[Reply], sent: float = due) -> None:
                # Measured from when the request was due: a late sender must not hide waiting time.
                latencies.append(time.perf_counter() - sent)
                answered.release()

            service.submit(Ask("cam", x)).add_done_callback(arrived)
            images += len(x)
        for _ in range(count):
            answered.acquire()
        return _load(f"{share:.0%} of capacity", variant, service, latencies, images, time.perf_counter() - began)


def memory(source: Classifier, method: str) -> Memory:
    """Measure the third stream of a service."""
    # A rule that needs states to return to, and never fires on the images of these streams.
    guard = parse_rules("skipped > 0.5: rollback")
    service = _service(source, get_method(method), "adapt", guard)
    weights = sum(p.nbytes for p in source.parameters())
    x = torch.rand(LARGEST, 3, 32, 32)
    # Twice as many batches as the guard waits before it keeps a state, and one more for good measure.
    long_run = 2 * Guarded.arguments()["keep_every"] + 1
    try:
        for name in ("first", "second"):
            _learn(service, name, x)
        before = _tensor_bytes()
        _learn(service, "third", x)
        one = _tensor_bytes() - before
        for _ in range(long_run):
            _learn(service, "third", x)
        service.snapshot("third")
        return Memory(method, one / weights, (_tensor_bytes() - before) / weights)
    finally:
        service.close()


def _learn(service: Service, stream: str, x: Tensor) -> None:
    service.submit(Ask(stream, x)).result()
    service.state(stream)  # waits until the stream has learnt


def _service(
    source: Classifier, make: Callable[[Classifier], Adapter], mode: Mode, guard: Sequence[Rule] = DEFAULT_RULES
) -> Service:
    limits = Limits(queue=100_000, learn_share=1.0)
    return Service(source, make, name="bench", state=None, limits=limits, mode=mode, guard=guard)


def _requests(seed: int) -> Iterator[Tensor]:
    sizes = random.Random(seed)
    images = torch.rand(LARGEST, 3, 32, 32)
    while True:
        yield images[: sizes.randint(1, LARGEST)]


def _load(load: str, variant: str, service: Service, latencies: list[float], images: int, seconds: float) -> Load:
    service.close()
    ordered = sorted(1000 * latency for latency in latencies)
    status = service.stream("cam")
    return Load(
        load=load,
        variant=variant,
        requests=len(ordered),
        p50=ordered[int(0.5 * len(ordered))],
        p99=ordered[int(0.99 * len(ordered))],
        images_per_second=images / seconds,
        learnt=status.learnt,
        shed=status.shed,
    )


def _tensor_bytes() -> int:
    gc.collect()
    storages = {}
    for found in gc.get_objects():
        if type(found) in (Tensor, Parameter):
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _verdicts(loads: list[Load]) -> Iterator[str]:
    p50 = {(load.load, load.variant): load.p50 for load in loads}
    for name in dict.fromkeys(load.load for load in loads):
        share = p50[name, "split"] / p50[name, "after"]
        verdict = "" if name == "closed loop" else f" (at most {TARGET}: {'pass' if share <= TARGET else 'FAIL'})"
        yield f"{name:18} p50 of split / p50 of after {share:.2f}{verdict}"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument("--method", default="dmse")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long requests are sent under every load")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.3, 0.6])
    parser.add_argument("--memory-of", nargs="*", default=["tent", "dmse"])
    parser.add_argument("--quick", action="store_true", help="a tiny network, only to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = bn_cnn() if args.quick else CifarResNet(20, 10)
    source = Classifier(net, mean=(0.5,) * 3, std=(0.25,) * 3)
    loads = []
    if args.seconds:
        for load in Bench(source, args.method, args.seconds, args.clients).measure(tuple(args.shares)):
            loads.append(load)
            print(
                f"{load.load:18} {load.variant:7} p50 {load.p50:7.1f} ms, p99 {load.p99:7.1f} ms, "
                f"{load.images_per_second:6.1f} images/s, {load.requests} requests, {load.learnt} batches learnt",
                flush=True,
            )
    for verdict in _verdicts(loads):
        print(verdict)
    memories = [memory(source, method) for method in args.memory_of]
    for found in memories:
        print(
            f"memory of a further stream of {found.method}, as a share of the weights: {found.after_one_step:.3f} "
            f"after one step, {found.in_the_long_run:.3f} in the long run",
            flush=True,
        )
    if args.json is not None:
        content = {"loads": [asdict(load) for load in loads], "memory": [asdict(found) for found in memories]}
        write_atomically(args.json, json.dumps(content, indent=1).encode())


if __name__ == "__main__":
    main()
