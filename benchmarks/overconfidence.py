"""How far networks overestimate themselves under a shift: `python -m benchmarks.overconfidence --data data`.

For each network, with batch statistics, on the first 200 images under each of fifteen corruptions: the error it expects
from its probabilities, the error it makes, and the share of its predictions that a small shift of the images changes.
The guard takes the ratio of the last to the first as overconfidence; see docs/guard.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.guard_streams import cifar
from ctta.guarded.confidence import Confidence, shifted
from ctta.methods import BN

NETWORKS = ("cifar10_resnet20", "cifar10_resnet20_ctta", "cifar10_resnet56", "cifar100_resnet56")


@dataclass(frozen=True)
class Shares:
    """Shares of the predictions: expected errors, errors, and predictions that a shift changes."""

    expected: float
    wrong: float
    changed: float
    overconfidence: float


@torch.no_grad()
def measure(data: Path, network: str, images: int = 200) -> Shares:
    """Measure one network.

    Args:
        data: The folder with the images and the weights.
        network: The network's name.
        images: Images per corruption, in one batch.
    """
    task = cifar(data, 0, images, images, network)
    adapter = BN(task.source)
    confidence = Confidence()
    expected, wrong, changed = 0.0, 0, 0
    for x, y in task.good:
        logits, moved = adapter.predict(x), adapter.predict(shifted(x))
        confidence.measure(logits, moved)
        expected += float((1 - logits.double().softmax(1).amax(1)).sum())
        wrong += int((logits.argmax(1) != y).sum())
        changed += int((logits.argmax(1) != moved.argmax(1)).sum())
    total = sum(len(y) for _, y in task.good)
    return Shares(expected / total, wrong / total, changed / total, confidence.overconfidence)


def main(arguments: list[str] | None = None) -> None:
    """Print one line for each network."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overconfidence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the test images and the weights")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    args = parser.parse_args(arguments)
    print(f"{'network':24} {'expected':>8} {'error':>8} {'changed':>8} {'factor':>8}")
    for network in args.networks:
        found = measure(args.data, network)
        shares = "".join(f" {100 * share:8.1f}" for share in (found.expected, found.wrong, found.changed))
        print(f"{network:24}{shares} {found.overconfidence:8.2f}", flush=True)


if __name__ == "__main__":
    main()
