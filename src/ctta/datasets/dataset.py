"""Dataset: everything that a run needs to know about its data, in one value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ctta.corruption_names import CORRUPTIONS
from ctta.errors import MissingData, ParameterError

if TYPE_CHECKING:
    from ctta.datasets.arrays import Images
    from ctta.datasets.domain import Domain

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Wanted:
    """The part of a dataset that a run needs.

    Args:
        data: The file or folder of --data, or None.
        domains: The corruptions or domains to show, in this order; None means the dataset's default.
        severities: The severities of the corruptions.
        seed: Seed of corruptions that are generated.
        image_list: A text file that lists the images to use, or None.
        side: The side in pixels to resize and crop images to; None leaves them as they are.
    """

    data: Path | None = None
    domains: tuple[str, ...] | None = None
    severities: tuple[int, ...] = (5,)
    seed: int = 0
    image_list: Path | None = None
    side: int | None = None

    @property
    def corruptions(self) -> tuple[str, ...]:
        """The corruptions to show: by default the fifteen of the paper."""
        return CORRUPTIONS if self.domains is None else self.domains

    @property
    def path(self) -> Path:
        """The file or folder of --data.

        Raises:
            MissingData: If none was given.
        """
        if self.data is None:
            raise MissingData("This dataset needs --data.")
        return self.data


@dataclass(frozen=True)
class Dataset:
    """A dataset that `ctta run` can stream.

    At least one of ``open`` and ``clean`` is needed. If both are given, ``clean`` is called first.

    Args:
        name: Its name on the command line and in records.
        open: Returns the domains that a run needs, in order.
        clean: Returns clean images, which are then corrupted on the fly, or None if the run needs stored domains.
        classes: The number of classes; None if it depends on the data.
        batch_size: Default number of images per batch.
        recipe: The benchmark whose published arguments the methods use by default, such as "cifar10-c"; or the
            arguments themselves, by name of the method; or None for the defaults of the constructors.
        default_model: The source model if the user names none.
        constants: Whose published constants to corrupt clean images with, "cifar" or "imagenet"; None chooses by image
            size.
        needs: What --data must be, to complete the sentence "NAME needs --data: ..."; empty if no files are needed.
        mirror: Whether a mirrored image keeps its class. If not, methods with an argument ``mirror`` get False.
        takes_image_list: Whether --image-list can choose among its files.
        takes_side: Whether --side can resize its images.
        summary: One line for `ctta ls streams`.
    """

    name: str
    open: Callable[[Wanted], Sequence[Domain]] | None = None
    clean: Callable[[Wanted], Images | None] | None = None
    classes: int | None = None
    batch_size: int = 200
    recipe: str | Mapping[str, Mapping[str, Any]] | None = field(default=None, hash=False)
    default_model: str | None = None
    constants: Literal["cifar", "imagenet"] | None = None
    needs: str = ""
    mirror: bool = True
    takes_image_list: bool = False
    takes_side: bool = False
    summary: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ParameterError(
                f"The name of a dataset must be letters, digits, '.', '_' and '-'. Got {self.name!r} instead."
            )
        if not callable(self.open) and not callable(self.clean):
            raise ParameterError(f"The dataset {self.name} needs open or clean, a function that reads its images.")
        for what, value, least in (("classes", self.classes, 1), ("batch_size", self.batch_size, 1)):
            if value is None and what == "classes":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ParameterError(
                    f"The {what} of the dataset {self.name} must be a whole number of at least {least}. Got {value!r}."
                )
