"""Clean images with two corruptions, one on top of the other."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ctta.corruptions import corrupt_at
from ctta.corruptions.constants import Scale
from ctta.datasets.arrays import Images
from ctta.datasets.domain import Labelled


class At(NamedTuple):
    """A corruption at a severity.

    Args:
        name: The corruption.
        severity: Any number from 0, which leaves images as they are, to 5.
    """

    name: str
    severity: float


class CorruptedTwice:
    """Corrupt images as they are taken: first by one corruption, then the result by another.

    Args:
        images: The clean images.
        first: The corruption that is applied first.
        second: The corruption that is applied to the result.
        seed: Seed of the random numbers.
        scale: "cifar" or "imagenet", whose published constants to use; None chooses or interpolates them by image size.
        among: The corruptions that the stream of these images chooses from, for records.
    """

    def __init__(
        self,
        images: Labelled,
        first: At,
        second: At,
        *,
        seed: int = 0,
        scale: Scale | None = None,
        among: tuple[str, ...] = (),
    ) -> None:
        self.images = images
        self.first = first
        self.second = second
        self.seed = seed
        self.scale: Scale | None = scale
        self.among = among

    @property
    def y(self) -> Tensor:
        """The classes (N,)."""
        return self.images.y

    def __len__(self) -> int:
        return len(self.images)

    def take(self, which: slice | Tensor) -> Images:
        """Return the corrupted images at some positions.

        Args:
            which: A slice, or a tensor of positions.
        """
        clean = self.images.take(which)
        x = clean.x
        for name, severity in (self.first, self.second):
            x = corrupt_at(x, name, severity, seed=self.seed, scale=self.scale)
        return Images(x, clean.y)
