"""Domain: labelled images from one distribution, read when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from ctta.datasets.arrays import Images

#: Checked against the published digests; made by our own corruptions; neither.
Origin = Literal["published", "generated", "unverified"]


class Labelled(Protocol):
    """Images that can be taken by position: `Images` in memory, files, or corruptions made on the fly."""

    @property
    def y(self) -> Tensor:
        """The classes (N,)."""

    def __len__(self) -> int: ...

    def take(self, which: slice | Tensor) -> Images:
        """Return the images at some positions.

        Args:
            which: A slice, or a tensor of positions.
        """


@dataclass(frozen=True)
class Domain:
    """Hold the images of one domain of a benchmark and where they come from.

    Args:
        name: The name of the domain, such as a corruption.
        severity: The severity of the corruption; 0 if the domain has none.
        images: The labelled images.
        origin: "published" if the files match the published digests, "generated" if ctta made the corruptions,
            otherwise "unverified".
        files: The files that hold the images and their labels; empty if they do not come from files.
        classes: The number of classes if the class folders define it, otherwise None.
        model_classes: The model's classes that the labels index, if the data has only some of them: label i is the
            model's class ``model_classes[i]``. None if labels are the model's classes.
        class_names: The names of the class folders in the order of the labels; empty if there are none.
    """

    name: str
    severity: int  # 0 if the domain has none
    images: Labelled
    origin: Origin = "unverified"
    files: tuple[Path, ...] = ()  # files with the images and their labels; empty if there are none
    classes: int | None = None  # known if the folders are named after classes
    model_classes: tuple[int, ...] | None = None
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)
