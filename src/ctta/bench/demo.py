"""The built-in benchmark: handwritten digits under the fifteen corruptions, without a download."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ctta._system.device import choose_device
from ctta.adapter import Adapter
from ctta.bench.arguments import build_adapter
from ctta.bench.executors import Threads, run_tasks
from ctta.bench.inputs import open_stream
from ctta.bench.progress import ProgressDisplay, step_cost
from ctta.bench.record import Record
from ctta.bench.run import Run
from ctta.bench.spec import RunSpec
from ctta.bench.specification import spec_of
from ctta.bench.workload import Inputs, Procedure, Workload
from ctta.corruptions import CORRUPTIONS
from ctta.errors import ParameterError
from ctta.nets.by_name import load_model
from ctta.registry import get_method
from ctta.streams.stream import Stream

#: A method that is ready to run, and the specification of its run.
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
    """Make the stream of the demo and its methods, as ``ctta run METHOD digits`` would.

    The corruptions have the constants of ImageNet-C. The weaker ones of CIFAR-10-C suit photographs with detail in
    every pixel. A digit is 8 x 8 cells enlarged four times: at severity 5, they would leave seven of the fifteen
    domains within two points of the clean error, with nothing to adapt to.

    Args:
        names: Names of the methods; a method that is named twice runs once.
        images: Images per domain; None means all.
        batch_size: Images per batch.
        severity: Severity of the corruptions.
        seed: Seed of the image order, the corruptions and the methods.
        domains: Number of corruptions, from the first; None means all.
        device: Where to compute; None means the best device.

    Raises:
        ParameterError: The last batch of a domain would be a single image.
    """
    inputs = Inputs("digits", "digits_resnet8", corruptions=CORRUPTIONS[:domains], images=images)
    procedure = Procedure("source", severity=severity, batch_size=batch_size, seed=seed)
    once: dict[type[Adapter], str] = {}
    for name in names:
        once.setdefault(get_method(name), name)
    workloads = [Workload(replace(procedure, method=name), inputs) for name in once.values()]
    stream, data = open_stream(Workload(procedure, inputs), keep=True)
    size = len(stream.segments[0].order)
    if batch_size > 1 and size % batch_size == 1:
        raise ParameterError(
            f"{size} images in batches of {batch_size} leave a last batch of one, which has no batch statistics. "
            "Choose another number of images or batch size."
        )
    chosen, loaded = choose_device(device), load_model(inputs.model)
    model = loaded.classifier.to(chosen)
    return stream.on(chosen), [(spec_of(work, loaded, stream, data), build_adapter(work, model)) for work in workloads]


def run_demo(
    entries: Sequence[Entry],
    stream: Stream,
    folder: Path,
    *,
    command: str = "",
    progress: ProgressDisplay | None = None,
) -> list[Record]:
    """Run every method through the same stream, in as many threads as there are cores. Finished runs are reused.

    Args:
        entries: The methods returned by `prepare_demo`.
        stream: The stream returned by `prepare_demo`.
        folder: Folder of the runs.
        command: The command line for the records.
        progress: Shows the progress.

    Returns:
        The records, in the order of the entries.
    """
    # Start the longest runs first, so that none of them is left to run alone at the end.
    longest = sorted(entries, key=lambda entry: step_cost(entry[1]), reverse=True)
    runs = [_run(spec, adapter, stream, command) for spec, adapter in longest]
    # No run is long enough to need a checkpoint.
    records = run_tasks(Threads(), runs, folder, save_every=math.inf, progress=progress)
    by_address = {record.address: record for record in records}
    return [by_address[spec.address] for spec, _ in entries]


def _run(spec: RunSpec, adapter: Adapter, stream: Stream, command: str) -> Run:
    return Run(spec, lambda: adapter, adapter.student, stream, command=command, own_process=False)
