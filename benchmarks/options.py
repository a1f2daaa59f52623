from __future__ import annotations

from dataclasses import dataclass

from ctta.classifier import Precision


@dataclass(frozen=True)
class Options:
    """What to measure, and how often."""

    rounds: int = 5
    quick: bool = False
    workloads: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    precisions: tuple[Precision, ...] = ("fp32", "bf16")

    @property
    def times(self) -> int:
        return 1 if self.quick else self.rounds
