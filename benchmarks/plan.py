"""Options of a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.subjects import HEAD1000, RESNET20, RESNET50, TINY, Subject
from ctta.classifier import Precision

NETWORKS = {"resnet20": RESNET20, "resnet50": RESNET50, "head1000": HEAD1000}


@dataclass(frozen=True)
class Plan:
    """Options of a measurement.

    Args:
        rounds: Number of measurements.
        quick: Use a tiny network, only to see that the measurement runs.
        networks: Names of networks.
        precisions: Precisions to measure in.
    """

    rounds: int = 5
    quick: bool = False
    networks: tuple[str, ...] = tuple(NETWORKS)
    precisions: tuple[Precision, ...] = ("fp32", "bf16")

    @property
    def subjects(self) -> list[Subject]:
        """The networks to measure on."""
        return [TINY] if self.quick else [NETWORKS[name] for name in self.networks]
