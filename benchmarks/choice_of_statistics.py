"""Compare the choices of statistics, with and without learning: `python -m benchmarks.choice_of_statistics --help`.

Streams of one domain each, from the first or the last half of the CIFAR-10 test images: with and without corruption, in
batches of several sizes, with classes shuffled, in clumps, sorted, or one of them more than half of all images. For
every kind of stream it prints the error of each fixed choice, that of "auto", and how far it is from the best of
them; with --rules also that of the other choices, whose share of the batch depends on its size, its shift or the past.
The method "bn" does not learn; any other method with batch norms does, from the source anew on every stream.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import ctta
from ctta._system.files import write_atomically
from ctta.corruptions import corrupt
from ctta.datasets.array_files import read_npz
from ctta.nets import classifier
from ctta.registry import get_method

FIXED = ("source", "share:0.2", "share:0.4", "share:0.7", "batch")
RULES = ("prior:16", "misfit", "moving:0.05")
CORRUPTIONS = ("gaussian_noise", "motion_blur", "fog", "pixelate")

Order = Callable[[Tensor, int, np.random.Generator], list[int]]


@dataclass(frozen=True)
class Kind:
    """A kind of stream: severity 0 is clean."""

    severity: int
    batch_size: int
    order: str = "shuffled"
    images: int = 400

    def __str__(self) -> str:
        shown = "clean" if self.severity == 0 else f"severity {self.severity}"
        return f"{shown}, {self.order}, {self.batch_size}"


def shuffled(labels: Tensor, count: int, draw: np.random.Generator) -> list[int]:
    """Take random images."""
    return [int(i) for i in draw.permutation(len(labels))[:count]]


def sorted_by_class(labels: Tensor, count: int, draw: np.random.Generator) -> list[int]:
    """Take random images, one class after the other."""
    return sorted(shuffled(labels, count, draw), key=lambda i: int(labels[i]))


def clumps(concentration: float) -> Order:
    """Spread each class over parts of about 64 images, by a Dirichlet distribution."""

    def order(labels: Tensor, count: int, draw: np.random.Generator) -> list[int]:
        parts: list[list[int]] = [[] for _ in range(max(1, count // 64))]
        chosen = shuffled(labels, count, draw)
        for label in range(int(labels.max()) + 1):
            own = [i for i in chosen if labels[i] == label]
            ends = (np.cumsum(draw.dirichlet([concentration] * len(parts))) * len(own)).astype(int)
            for part, some in zip(parts, np.split(np.array(own, dtype=int), ends[:-1]), strict=True):
                part.extend(some.tolist())
        return [int(i) for part in parts for i in draw.permutation(part)]

    return order


def skewed(labels: Tensor, count: int, draw: np.random.Generator) -> list[int]:
    """Take random images of which 55 % are of class 5."""
    drawn = shuffled(labels, len(labels), draw)
    often, others = [i for i in drawn if labels[i] == 5], [i for i in drawn if labels[i] != 5]
    most = min(int(0.55 * count), len(often))
    together = often[:most] + others[: count - most]
    return [together[i] for i in draw.permutation(count)]


ORDERS: dict[str, Order] = {
    "shuffled": shuffled,
    "sorted": sorted_by_class,
    "Dirichlet 0.1": clumps(0.1),
    "Dirichlet 0.01": clumps(0.01),
    "55 % one class": skewed,
}

KINDS = [
    *(Kind(severity, 200) for severity in (0, 1, 3, 5)),
    *(Kind(severity, 64, images=256) for severity in (0, 1, 3, 5)),
    *(Kind(severity, 16, images=160) for severity in (0, 1, 3, 5)),
    *(Kind(severity, 1, images=64) for severity in (0, 1, 3, 5)),
    *(Kind(severity, 64, order) for order in list(ORDERS)[1:] for severity in (0, 1, 3, 5)),
]


def streams(x: Tensor, y: Tensor, kind: Kind) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the images and labels of each stream of a kind: one per corruption, or one if clean."""
    index = torch.tensor(ORDERS[kind.order](y, kind.images, np.random.default_rng(7)))
    for name in CORRUPTIONS if kind.severity else ("clean",):
        images = x[index] if name == "clean" else corrupt(x[index], name, severity=kind.severity)
        yield images.float() / 255, y[index]


def wrong_predictions(adapter: ctta.Adapter, x: Tensor, y: Tensor, batch_size: int) -> int:
    """Count the wrong predictions of a new adapter along a stream."""
    wrong = 0
    for start in range(0, len(y), batch_size):
        images = x[start : start + batch_size]
        enough = len(images) >= adapter.smallest_batch
        logits = adapter(images) if enough else adapter.predict(images, allow_small=True)
        wrong += int((logits.argmax(1) != y[start : start + batch_size]).sum())
    return wrong


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice_of_statistics", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="npz of the CIFAR-10 test images")
    parser.add_argument("--model", default="cifar10_resnet20_ctta")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--method", default="bn", help="the method that predicts, and learns unless it is bn")
    parser.add_argument("--half", choices=["first", "last"], default="last")
    parser.add_argument("--only", default="", help="part of the name of a stream, such as sorted")
    parser.add_argument("--rules", action="store_true", help=f"also measure {', '.join(RULES)}")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    source, make = classifier(args.model, args.weights), get_method(args.method)
    arrays, labels = read_npz(args.data)
    middle = len(labels) // 2
    half = slice(0, middle) if args.half == "first" else slice(middle, None)
    x, y = torch.from_numpy(arrays[half]).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels[half]).long()
    found: dict[str, dict[str, float]] = {}
    choices = [*FIXED, *(RULES if args.rules else ()), "auto"]
    print("| stream | " + " | ".join(choices) + " | auto - best fixed |")
    print("|---" * (len(choices) + 2) + "|", flush=True)
    for kind in (kind for kind in KINDS if args.only in str(kind)):
        errors = dict.fromkeys(choices, 0.0)
        count = 0
        for images, classes in streams(x, y, kind):
            count += len(classes)
            for statistics in errors:
                adapter = make(source, **make.recipe("cifar10-c") | {"statistics": statistics})
                errors[statistics] += wrong_predictions(adapter, images, classes, kind.batch_size)
        found[str(kind)] = {statistics: 100 * wrong / count for statistics, wrong in errors.items()}
        row = found[str(kind)]
        cells = [f"{row[statistics]:.1f}" for statistics in choices]
        print(f"| {kind} | " + " | ".join(cells) + f" | {row['auto'] - min(row[f] for f in FIXED):+.1f} |", flush=True)
    if args.json is not None:
        record = {"model": args.model, "method": args.method, "half": args.half, "errors": found}
        write_atomically(args.json, (json.dumps(record, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
