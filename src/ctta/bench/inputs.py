"""The images of a workload, and their order in its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ctta.bench.content import digest_of
from ctta.bench.data import Facts, Opened, open_data, read_images
from ctta.bench.workload import Workload
from ctta.classifier import Classifier
from ctta.datasets import Dataset, Wanted, get_dataset
from ctta.protocol import StreamParts, get_protocol
from ctta.streams.stream import Stream


def open_stream(work: Workload, *, keep: bool = False, source: Classifier | None = None) -> tuple[Stream, Facts]:
    """Open the stream of a workload, with the facts of its data.

    Args:
        work: The workload.
        keep: Whether to keep generated images in memory, for several concurrent runs.
        source: The source model, for protocols that choose images by its predictions.
    """
    opened = open_inputs(work, get_dataset(work.inputs.stream), keep=keep)
    return stream_of(work, opened, source), opened.facts


def open_inputs(work: Workload, dataset: Dataset, *, keep: bool = False) -> Opened:
    """Open the images of a workload.

    Args:
        work: The workload.
        dataset: Its dataset.
        keep: Whether to keep generated images in memory, for several concurrent runs.
    """
    inputs, protocol = work.inputs, get_protocol(work.procedure.protocol)
    wanted = Wanted(
        data=inputs.data,
        domains=inputs.corruptions,
        severities=protocol.severities_at(work.procedure.severity),
        seed=work.procedure.seed,
        image_list=inputs.image_list,
        side=inputs.side,
    )
    opened = open_data(dataset, wanted, keep=keep)
    if not protocol.needs_clean or inputs.clean is None:
        return opened
    images = read_images(inputs.clean, dataset.classes)
    return replace(opened, clean=images, facts=opened.facts | {"clean": digest_of(images, inputs.clean)})


def stream_of(
    work: Workload,
    opened: Opened,
    source: Classifier | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> Stream:
    """Put the images of a workload into the order of its protocol.

    Args:
        work: The workload.
        opened: Its images, as returned by `open_inputs`.
        source: The source model, for protocols that choose images by its predictions.
        progress: Called with the name of the current part, the number of images done and the total, while the source
            model is measured.
    """
    procedure = work.procedure
    protocol = get_protocol(procedure.protocol)
    parts = StreamParts(
        domains=opened.domains,
        batch_size=work.batch_size,
        seed=procedure.seed,
        images=work.inputs.images,
        order=procedure.order,
        times=procedure.times,
        clean=opened.clean,
        source=source,
        options=protocol.with_options(procedure.options),
        named=work.inputs.corruptions is not None,
        progress=progress,
    )
    return protocol.stream(parts)
