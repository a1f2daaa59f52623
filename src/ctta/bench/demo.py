"""The built-in benchmark: handwritten digits under the fifteen corruptions, without a download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any

import torch

from ctta.adapter import Adapter
from ctta.bench.jobs import Job, build_adapter, open_stream, spec_of
from ctta.bench.prequential import Progress, evaluate
from ctta.bench.record import write_record
from ctta.bench.run import record_of
from ctta.bench.spec import RunSpec
from ctta.bench.steps import STEPS, line_of
from ctta.device import choose_device
from ctta.errors import ParameterError
from ctta.files import write_atomically
from ctta.nets.by_name import load_model
from ctta.registry import get_method
from ctta.streams.corruptions import CORRUPTIONS
from ctta.streams.stream import Stream

#: A method ready to run, and what its run is by content.
Entry = tuple[RunSpec, Adapter]


def prepare_demo(
    names: Sequence[str],
    *,
    images: int | None = None,
    batch_size: int = 50,
    severity: int = 5,
    seed: int = 0,
    domains: int | None = None,
    device: str | None = None,
) -> tuple[Stream, list[Entry]]:
    """The stream of the demo and the named methods, just as ``ctta run METHOD digits`` would make them.

    The constants of the corruptions are those of ImageNet-C. The weaker ones of CIFAR-10-C suit photographs with detail
    in every pixel. A digit is 8 x 8 cells enlarged four times: at severity 5 they leave seven of the fifteen domains
    within two points of the clean error, and there is nothing to adapt to.
    """
    job = Job(
        method="source",
        stream="digits",
        model="digits_resnet8",
        corruptions=CORRUPTIONS[:domains],
        severity=severity,
        images=images,
        batch_size=batch_size,
        seed=seed,
    )
    once: dict[type[Adapter], str] = {}
    for name in names:
        once.setdefault(get_method(name), name)
    jobs = [replace(job, method=name) for name in once.values()]
    stream, data = open_stream(job, keep=True)
    size = len(stream.segments[0].order)
    if batch_size > 1 and size % batch_size == 1:
        raise ParameterError(
            f"{size} images in batches of {batch_size} leave a last batch of one, which has no batch statistics. "
            "Choose another number of images or batch size."
        )
    chosen, loaded = choose_device(device), load_model(job.model)
    model = loaded.classifier.to(chosen)
    return stream.on(chosen), [(spec_of(job, loaded, stream, data), build_adapter(job, model)) for job in jobs]


def run_demo(
    entries: Sequence[Entry],
    stream: Stream,
    folder: Path,
    *,
    command: str = "",
    progress: Callable[[Adapter], Progress] | None = None,
) -> list[dict[str, Any]]:
    """Run every method through the same stream, as many at once as there are cores, each on one thread.

    One thread per method keeps both cores busy where a small network cannot, holds its pace beside busy neighbours,
    and gives the same numbers whatever the number of cores. ``folder`` takes the records, which are also returned;
    ``progress`` gives the listener for a method.
    """

    stop = Event()

    def run(spec: RunSpec, adapter: Adapter) -> dict[str, Any]:
        batches = takewhile(lambda _: not stop.is_set(), stream)
        report = evaluate(adapter, batches, progress=progress(adapter) if progress else None)
        if stop.is_set():
            raise CancelledError
        # Memory is measured of a process, and this one holds all the methods.
        record = record_of(spec, adapter, report.steps, command) | {"peak_memory": None}
        lines = "".join(map(line_of, report.steps))
        write_atomically(folder / spec.address / STEPS, lines.encode())
        write_record(folder / spec.address, record)
        return record

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            # The longest first, so that none is left to run alone at the end.
            longest = sorted(entries, key=lambda entry: cost(entry[1]), reverse=True)
            running = {adapter: pool.submit(run, spec, adapter) for spec, adapter in longest}
            try:
                for ended in wait(running.values(), return_when=FIRST_EXCEPTION).done:
                    ended.result()
                return [running[adapter].result() for _, adapter in entries]
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(threads)


def cost(adapter: Adapter) -> int:
    """Work of a step in forward passes; a backward pass takes about two."""
    forward, backward = adapter.passes
    return forward + 2 * backward
