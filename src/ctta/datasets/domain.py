"""Domain: labelled images from one place, read when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from ctta.datasets.arrays import Images

#: Checked against the published digests; made by our own corruptions; neither.
Origin = Literal["published", "generated", "unverified"]


class Labelled(Protocol):
    """Images that can be taken by position: `Images` in memory, files, or corruptions made on the way."""

    @property
    def y(self) -> Tensor:
        """The classes (N,)."""

    def __len__(self) -> int: ...

    def take(self, which: slice | Tensor) -> Images:
        """The images at these positions."""


@dataclass(frozen=True)
class Domain:
    """A domain of a benchmark and where its images come from."""

    name: str
    severity: int  # 0 where a domain has none
    images: Labelled
    origin: Origin = "unverified"
    files: tuple[Path, ...] = ()  # that hold the images and their labels, where they come from files
    classes: int | None = None  # how many there are, where the names of folders tell

    def __len__(self) -> int:
        return len(self.images)
