"""Open what a workload names: its model, its images and their stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ctta._system.imports import user_code
from ctta.bench.data import Opened
from ctta.bench.inputs import open_inputs, stream_of
from ctta.bench.model_check import check_model
from ctta.bench.spec import RunSpec
from ctta.bench.specification import spec_of
from ctta.bench.workload import Workload
from ctta.classifier import Classifier
from ctta.datasets import get_dataset
from ctta.nets.by_name import Loaded, load_model
from ctta.nets.class_subset import with_classes
from ctta.streams.stream import Stream


@dataclass(frozen=True)
class Prepared:
    """A workload whose model and images have been opened.

    Args:
        work: The workload.
        loaded: Its model, with all its classes.
        images: Its images.
        source: The source model of the run, on the run's device. It has only the classes of the images.
        stream: The images in the order of the protocol, on the same device.
    """

    work: Workload
    loaded: Loaded
    images: Opened
    source: Classifier
    stream: Stream

    def check(self) -> None:
        """Refuse a model that cannot take the images, or whose classes differ from those of the data."""
        dataset = get_dataset(self.work.inputs.stream)
        check_model(self.work.inputs.model, self.source, dataset, self.images, self.stream)

    def specification(self) -> RunSpec:
        """Describe the run by its content."""
        return spec_of(self.work, self.loaded, self.stream, self.images.facts)


def prepare(
    work: Workload,
    device: torch.device | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> Prepared:
    """Open the model and the images of a workload.

    Args:
        work: The workload.
        device: Where the run computes; None leaves everything in main memory.
        progress: Called with the name of the current part, the number of images done and the total, while the source
            model is measured for a protocol that chooses images by its predictions.
    """
    dataset = get_dataset(work.inputs.stream)
    loaded = load_model(work.inputs.model, work.inputs.weights, classes=dataset.classes)
    images = open_inputs(work, dataset)
    source = loaded.classifier
    if images.model_classes is not None:
        source = with_classes(source, images.model_classes)
    if device is not None:
        with user_code("Moving the model"):
            source = source.to(device)
    stream = stream_of(work, images, source, progress=progress)
    return Prepared(work, loaded, images, source, stream if device is None else stream.on(device))
