"""What the guard sees of a batch: numbers that tell a healthy adapter from a harmful one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Signal = Literal["agreement", "drift", "lost_diversity", "diversity", "entropy", "loss", "skipped"]

SIGNALS: tuple[Signal, ...] = get_args(Signal)
#: Signals that need the reference.
COMPARED: tuple[Signal, ...] = ("agreement", "drift", "lost_diversity")


@dataclass(frozen=True)
class Compared:
    """A comparison with the reference over some images.

    Args:
        images: How many.
        agreement: Share of equal answers.
        drift: Share of different answers, divided by the reference's normalised entropy.
        lost_diversity: The reference's diversity minus the adapter's.
    """

    images: int
    agreement: float
    drift: float
    lost_diversity: float


@dataclass(frozen=True)
class Signals:
    """What one batch showed.

    Args:
        images: Images in the batch.
        entropy: Mean entropy of the adapter's answers, divided by log K.
        diversity: Entropy of their mean prediction, divided by log K.
        loss: The step's loss, if it has one.
        finite: Whether the step was finite.
        compared: The comparison with the reference, if enough images were compared by now.
    """

    images: int
    entropy: float
    diversity: float
    loss: float | None = None
    finite: bool = True
    compared: Compared | None = None

    def values(self) -> dict[str, float]:
        """Every signal that is known, by name."""
        found = {"diversity": self.diversity, "entropy": self.entropy, "skipped": float(not self.finite)}
        if self.loss is not None:
            found["loss"] = self.loss
        if self.compared is not None:
            found |= {name: getattr(self.compared, name) for name in COMPARED}
        return found
