"""Streams for the guard: made to break a model, or like the runs of docs/results, on digits and on CIFAR-10-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctta.bench.demo import prepare_demo
from ctta.classifier import Classifier
from ctta.datasets import cifar10, cifar100
from ctta.datasets.corrupted import corrupted
from ctta.nets.by_name import load_model
from ctta.registry import get_method
from ctta.streams import Images, continual

Batches = list[tuple[Tensor, Tensor]]
#: A learning rate at which methods break.
TOO_HIGH = 0.05
#: Batches of good data before and after the bad part, and the batch of the good data at which the second part begins.
BEFORE, AFTER, RESUMES = 36, 60, 108


@dataclass(frozen=True)
class Trial:
    """A stream, where its last good part begins, and the arguments of the method."""

    name: str
    batches: Batches
    good_again: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """Good data, and the network that adapts to it.

    Args:
        source: The network.
        good: Batches of fifteen corruptions, equally many of each.
        settings: Returns the arguments of a method.
    """

    source: Classifier
    good: Batches
    settings: Callable[[str], dict[str, Any]]


def digits() -> Task:
    """The stream of the demo."""
    stream, _ = prepare_demo(["bn"])
    return Task(load_model("digits_resnet8").classifier, [(b.x, b.y) for b in stream], lambda method: {})


def cifar(data: Path, first: int, batch_size: int, images: int, network: str = "cifar10_resnet20") -> Task:
    """CIFAR-10-C or CIFAR-100-C at severity 5.

    Args:
        data: The folder with the images and the weights.
        first: Position of the first test image to take.
        batch_size: Images per batch.
        images: Images per corruption.
        network: A network of this project; its weights are bundled or in the folder.
    """
    dataset = cifar100 if network.startswith("cifar100") else cifar10
    test = dataset.load(data, "test")
    clean = Images(test.x[first : first + images], test.y[first : first + images])
    stream = continual(corrupted(clean, keep=True), batch_size=batch_size)
    weights = data / f"{network}.safetensors"
    source = load_model(network, weights if weights.exists() else None).classifier
    recipe = "cifar100-c" if dataset is cifar100 else "cifar10-c"
    return Task(source, [(b.x, b.y) for b in stream], lambda method: get_method(method).recipe(recipe))


def breaking(task: Task, method: str, bad: int) -> Iterator[Trial]:
    """The streams that break a model.

    Args:
        task: The good data.
        method: The method.
        bad: Number of harmful batches; sorted labels use the good data at most once.
    """
    good, options = task.good, task.settings(method)
    shape, size = good[0][0].shape, len(good[0][0])
    x, y = torch.cat([x for x, _ in good]), torch.cat([y for _, y in good])
    generator = torch.Generator().manual_seed(0)
    no_labels = torch.full((size,), -1)
    of_class = (y == 3).nonzero()[:, 0]
    one_class = of_class[torch.randint(len(of_class), (bad * size,), generator=generator)]
    by_label = y.view(15, -1).argsort(dim=1, stable=True) + torch.arange(15).unsqueeze(1) * (len(y) // 15)
    parts: dict[str, Batches] = {
        "one class": [(x[rows], y[rows]) for rows in torch.split(one_class, size)],
        "noise": [(torch.rand(shape, generator=generator), no_labels) for _ in range(bad)],
        "black": [(torch.zeros(shape), no_labels)] * bad,
        "sorted": [(x[rows], y[rows]) for rows in torch.split(by_label.flatten()[: bad * size], size)],
    }
    yield Trial("learning rate", good[: BEFORE + AFTER], 0, {**options, "lr": TOO_HIGH})
    for name, part in parts.items():
        batches = [*good[:BEFORE], *part, *good[RESUMES : RESUMES + AFTER]]
        yield Trial(name, batches, BEFORE + len(part), options)


def healthy(task: Task, method: str) -> Trial:
    """The good data alone.

    Args:
        task: The good data.
        method: The method.
    """
    return Trial("healthy", task.good, 0, task.settings(method))
