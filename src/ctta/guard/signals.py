"""The guard's signals: numbers about a batch that distinguish a healthy adapter from a harmful one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Signal = Literal["agreement", "drift", "regret", "lost_diversity", "diversity", "entropy", "loss", "skipped"]

SIGNALS: tuple[Signal, ...] = get_args(Signal)
#: Signals that need the reference.
COMPARED: tuple[Signal, ...] = ("agreement", "drift", "regret", "lost_diversity")


@dataclass(frozen=True)
class Compared:
    """A comparison with the reference over some images.

    Args:
        images: The number of images.
        agreement: Share of equal predictions.
        drift: Share of different predictions, divided by the reference's normalised entropy.
        regret: By how much the reference believes less in the adapter's predictions than in its own, divided by its own
            doubt: if it is calibrated, the share by which the adapter makes more errors.
        lost_diversity: The reference's diversity minus the adapter's.
    """

    images: int
    agreement: float
    drift: float
    regret: float
    lost_diversity: float


@dataclass(frozen=True)
class Signals:
    """The signals of one batch.

    Args:
        images: Images in the batch.
        entropy: Mean entropy of the adapter's predictions, divided by log K.
        diversity: Entropy of the mean prediction, divided by log K.
        loss: The step's loss, if it has one.
        finite: Whether the step was finite.
        compared: The comparison with the reference, if enough images have been compared.
    """

    images: int
    entropy: float
    diversity: float
    loss: float | None = None
    finite: bool = True
    compared: Compared | None = None

    def values(self) -> dict[str, float]:
        """Return every known signal by name."""
        found = {"diversity": self.diversity, "entropy": self.entropy, "skipped": float(not self.finite)}
        if self.loss is not None:
            found["loss"] = self.loss
        if self.compared is not None:
            found |= {name: getattr(self.compared, name) for name in COMPARED}
        return found
