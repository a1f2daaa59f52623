"""Measure the service under load: `python -m benchmarks.serve`.

Clients send requests of 1 to 16 images to one stream. Three variants serve them in one run: "frozen" does not learn,
"after" learns from every batch before it replies, "split" is what the service does by default: it replies, then learns,
and answers what arrives meanwhile from the state before. Closed loop: every client waits for its reply before it sends
the next request. Open loop: requests arrive at random at a share of the capacity of "after", even if others are
waiting; the variants take turns of a few seconds with the same requests, so that a busy machine slows all of them down
alike. Every load lasts for the requested time, so the whole benchmark takes about ten times as long.
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
from dataclasses import asdict, dataclass, field
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
#: Seconds of one turn of a variant in the open loop.
TURN = 4.0
#: Upper limit of the median latency of "split", as a share of that of "after".
TARGET = 0.5


@dataclass(frozen=True)
class Load:
    """Latency in milliseconds, images per second and CPU milliseconds per request of one variant under one load."""

    load: str
    variant: str
    requests: int
    p50: float
    p99: float
    images_per_second: float
    cpu_per_request: float
    learnt: int
    shed: int

    def __str__(self) -> str:
        return (
            f"{self.load:18} {self.variant:7} p50 {self.p50:7.1f} ms, p99 {self.p99:7.1f} ms, "
            f"{self.images_per_second:6.1f} images/s, {self.requests} requests, {self.cpu_per_request:.0f} ms of CPU "
            f"each, {self.learnt} batches learnt, {self.shed} shed"
        )


@dataclass
class Tally:
    """What one variant did under one load, in one or several turns."""

    latencies: list[float] = field(default_factory=list)
    images: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    def load(self, name: str, variant: str, service: Service) -> Load:
        """Sum up, and close the service."""
        status = service.stream("cam")
        service.close()
        ordered = sorted(1000 * latency for latency in self.latencies)
        return Load(
            load=name,
            variant=variant,
            requests=len(ordered),
            p50=ordered[int(0.5 * len(ordered))],
            p99=ordered[int(0.99 * len(ordered))],
            images_per_second=self.images / self.seconds,
            cpu_per_request=1000 * self.cpu / len(ordered),
            learnt=status.learnt,
            shed=status.shed,
        )


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
        for share in shares:
            services = {variant: self._service(variant) for variant in VARIANTS}
            tallies = {variant: Tally() for variant in VARIANTS}
            per_second = share * capacity / ((1 + LARGEST) / 2)
            turns = max(1, round(self._seconds / TURN))
            for turn, variant in itertools.product(range(turns), VARIANTS):
                self._open(services[variant], tallies[variant], per_second, self._seconds / turns, turn)
            for variant in VARIANTS:
                yield tallies[variant].load(f"{share:.0%} of capacity", variant, services[variant])

    def _service(self, variant: str) -> Service:
        cls: Any = self._method
        if variant == "after":

            class After(cls):  # type: ignore[misc]
                """Learns before it replies."""

                def adapt(self, x: Tensor) -> Step:
                    return finish(super().adapt(x))

            cls = After
        limits = Limits(queue=100_000) if variant == "split" else Limits(queue=100_000, learn_share=1.0)
        service = _service(self._source, cls, "frozen" if variant == "frozen" else "adapt", limits)
        service.submit(Ask("cam", torch.rand(LARGEST, 3, 32, 32))).result()
        service.snapshot("cam")  # after the first step, which creates buffers
        return service

    def _closed(self, variant: str) -> Load:
        service = self._service(variant)
        tally = Tally()

        def client(seed: int) -> None:
            requests = _requests(seed)
            while time.perf_counter() < end:
                x = next(requests)
                began = time.perf_counter()
                service.submit(Ask("cam", x)).result()
                tally.latencies.append(time.perf_counter() - began)
                sizes.append(len(x))

        sizes: list[int] = []
        began, cpu = time.perf_counter(), time.process_time()
        end = began + self._seconds
        with ThreadPoolExecutor(self._clients) as pool:
            list(pool.map(client, range(self._clients)))
        tally.seconds = time.perf_counter() - began
        service.snapshot("cam")  # waits until the rest is learnt, which counts
        tally.cpu = time.process_time() - cpu
        tally.images = sum(sizes)
        return tally.load("closed loop", variant, service)

    def _open(self, service: Service, tally: Tally, per_second: float, seconds: float, turn: int) -> None:
        answered = threading.Semaphore(0)
        requests, gaps = _requests(turn), random.Random(turn)
        count = max(1, round(per_second * seconds))
        cpu = time.process_time()
        began = due = time.perf_counter()
        for x in itertools.islice(requests, count):
            due += gaps.expovariate(per_second)
            time.sleep(max(0.0, due - time.perf_counter()))

            def arrived(_: Future[Reply], sent: float = due) -> None:
                # Measured from when the request was due: a late sender must not hide waiting time.
                tally.latencies.append(time.perf_counter() - sent)
                answered.release()

            service.submit(Ask("cam", x)).add_done_callback(arrived)
            tally.images += len(x)
        for _ in range(count):
            answered.acquire()
        tally.seconds += time.perf_counter() - began
        service.snapshot("cam")  # waits until the rest is learnt, which counts
        tally.cpu += time.process_time() - cpu


def memory(source: Classifier, method: str) -> Memory:
    """Measure the third stream of a service."""
    # A rule that needs states to return to, and never fires on the images of these streams.
    guard = parse_rules("skipped > 0.5: rollback")
    service = _service(source, get_method(method), "adapt", Limits(), guard)
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
    source: Classifier,
    make: Callable[[Classifier], Adapter],
    mode: Mode,
    limits: Limits,
    guard: Sequence[Rule] = DEFAULT_RULES,
) -> Service:
    return Service(source, make, name="bench", state=None, limits=limits, mode=mode, guard=guard)


def _requests(seed: int) -> Iterator[Tensor]:
    sizes = random.Random(seed)
    images = torch.rand(LARGEST, 3, 32, 32)
    while True:
        yield images[: sizes.randint(1, LARGEST)]


def _tensor_bytes() -> int:
    gc.collect()
    storages = {}
    for found in gc.get_objects():
        if type(found) in (Tensor, Parameter) and found.layout is torch.strided:
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
            print(load, flush=True)
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
