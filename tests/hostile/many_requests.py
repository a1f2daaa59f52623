"""Many requests of every kind to one service: its memory stays flat."""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ctta.errors import CttaError, NonFiniteImages, QueueFull
from ctta.serve.service import Service
from ctta.serve.types import Ask, Reply
from hostile.tally import Tally
from serve.engine import LIMITS, WAIT, classifier, images, tent

LONG = 100_000
_CLIENTS = 4
_OUTSTANDING = 16
_LIMITS = replace(LIMITS, batch=64, queue=128, save_every=20, keep=2, learn_share=0.25, remembered=50)
#: Bytes by which a process may grow after its first tenth: the allocator keeps what it has freed.
_GROWTH = 30_000_000
#: Tensors and other objects that come and go, such as those of a snapshot on its way to disk.
_OBJECTS = 3000
#: Bytes of tensors that the guards of young streams do not hold yet, the states that they may return to and their
#: images; how young they are depends on how many batches were learnt.
_TENSORS = 3_000_000


@dataclass(frozen=True)
class Held:
    """What a process has in memory."""

    objects: int
    tensor_bytes: int
    resident: int


def main(count: int, seed: int) -> None:
    """Send ``count`` requests; raise if one is lost or the memory grows."""
    run(count, seed).report("many_requests")


def run(count: int, seed: int) -> Tally:
    """The same, but return the tally."""
    torch.set_num_threads(1)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        service = Service(classifier(), tent, name="tiny", state=Path(folder), limits=_LIMITS)
        events = [service.subscribe(stream) for stream in _streams(service)]
        try:
            _send(service, count // 10, seed, tally)
            before = held()
            _send(service, count - count // 10, seed + 1, tally)
            after = held()
        finally:
            service.close()
        assert all(queue.full() or queue.qsize() for queue in events)
    for name in ("objects", "tensor_bytes", "resident"):
        tally.counts[f"{name} more"] = getattr(after, name) - getattr(before, name)
    if after.objects - before.objects > _OBJECTS or after.resident - before.resident > _GROWTH:
        tally.problem(f"the memory grew from {before} to {after}")
    if after.tensor_bytes - before.tensor_bytes > _TENSORS:
        tally.problem(f"tensors grew from {before.tensor_bytes} to {after.tensor_bytes} bytes")
    return tally


def _streams(service: Service) -> list[str]:
    names = ["a", "b"]
    for name in names:
        service.submit(Ask(name, images(2))).result(WAIT)
    return names


def _send(service: Service, count: int, seed: int, tally: Tally) -> None:
    counting = threading.Lock()

    def client(number: int) -> None:
        draw = random.Random(1000 * seed + number)
        pool = [images(4, i) for i in range(8)]
        outstanding: deque[Future[Reply]] = deque()
        for i in range(count // _CLIENTS):
            what = _one(service, draw, pool, f"{seed}-{number}-{i}", outstanding)
            while len(outstanding) > _OUTSTANDING:
                outstanding.popleft().result(WAIT)
            with counting:
                tally.saw(what)
        while outstanding:
            outstanding.popleft().result(WAIT)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _one(
    service: Service, draw: random.Random, pool: list[Tensor], name: str, outstanding: deque[Future[Reply]]
) -> str:
    """Send one request of any kind, and now and then do something else to its stream."""
    stream, x = draw.choice("ab"), draw.choice(pool)[: draw.randint(1, 4)]
    kind = draw.random()
    if kind < 0.01:
        service.labels(stream, {name: [0] * len(x), "unknown": [1]})
    if kind < 0.002:
        service.evict(stream)
    try:
        if kind > 0.98:
            x = x * float("nan")
        again = "again" if kind > 0.9 else name
        outstanding.append(service.submit(Ask(stream, x, id=again, learn=kind > 0.1)))
    except NonFiniteImages:
        return "refused for NaN"
    except QueueFull:
        # Like a client told to retry later: it waits for the requests it has sent.
        while outstanding:
            outstanding.popleft().result(WAIT)
        return "refused because the queue was full"
    except CttaError as error:
        return f"failed: {error}"
    return "answered"


def held() -> Held:
    """What this process has in memory now."""
    gc.collect()
    found = gc.get_objects()
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found if issubclass(type(t), Tensor)
    }
    return Held(len(found), sum(storages.values()), _resident())


def _resident() -> int:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except FileNotFoundError:  # not Linux: the objects are counted all the same
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LONG, seed=0)
