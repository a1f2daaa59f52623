"""Any clean images with generated corruptions, as domains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import Lock

import torch
from torch import Tensor

from ctta._checks.numbers import check_seed
from ctta._checks.sequences import names_of, numbers_of
from ctta.corruptions import CORRUPTIONS, constants, corrupt
from ctta.corruptions.constants import Scale
from ctta.datasets.arrays import Images
from ctta.datasets.domain import Domain, Labelled
from ctta.errors import BadData, ParameterError


def corrupted(
    images: Labelled,
    corruptions: str | Sequence[str] = CORRUPTIONS,
    severities: int | Iterable[int] = (5,),
    *,
    seed: int = 0,
    scale: Scale | None = None,
    keep: bool = False,
) -> list[Domain]:
    """Return one domain for each corruption and severity, made from clean images when they are needed.

    Args:
        images: The clean images.
        corruptions: One or more names of corruptions, each once; by default the 15 of the benchmark.
        severities: One or more severities from 1 to 5.
        seed: Seed of the random numbers.
        scale: "cifar" or "imagenet", whose published constants to use; None chooses or interpolates them by image size.
        keep: Whether to corrupt a whole domain at once and hold it in memory, for streams that several methods read.
    """
    domains, names, levels = [], names_of(corruptions, "corruptions"), numbers_of(severities, "severities")
    # Results are kept by domain: those of a corruption that comes twice would be merged into one.
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ParameterError(
            f"Each corruption must be given once; got {twice} {names.count(twice)} times. Leave out the repetition; "
            "the recurring protocol shows domains again."
        )
    check_seed(seed)
    for name in names:
        for severity in levels:
            constants(name, severity=severity, scale=scale)  # an unknown name fails now, not hours into the stream
            made = Corrupted(images, name, severity, seed=seed, scale=scale, keep=keep)
            domains.append(Domain(name, severity, made, "generated"))
    return domains


class Corrupted:
    """Corrupt images as they are taken; an image looks the same in every batch.

    Args:
        images: The clean images.
        name: The corruption.
        severity: 1 (mild) to 5 (strong).
        seed: Seed of the random numbers.
        scale: "cifar" or "imagenet", whose published constants to use; None chooses or interpolates them by image size.
        keep: Whether to corrupt all images the first time any are taken, and hold them in memory.
    """

    def __init__(
        self, images: Labelled, name: str, severity: int, *, seed: int, scale: Scale | None, keep: bool
    ) -> None:
        self.images = images
        self.name = name
        self.severity = severity
        self.seed = seed
        self.scale = scale
        self.keep = keep
        self._making = Lock()

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
        if not self.keep:
            return self._made(which)
        with self._making:  # several methods may read one stream concurrently
            kept = self._all
        return kept.take(which)

    @cached_property
    def _all(self) -> Images:
        return self._made(slice(None))

    def _made(self, which: slice | Tensor) -> Images:
        clean = self.images.take(which)
        return Images(corrupt(clean.x, self.name, severity=self.severity, seed=self.seed, scale=self.scale), clean.y)


class Pooled:
    """Join several domains into one set of images.

    Args:
        domains: The domains, at least one, with images of one size; positions count through them in this order.
    """

    def __init__(self, domains: Sequence[Domain]) -> None:
        self.domains = tuple(domains)
        self._ends = torch.tensor([len(domain) for domain in self.domains]).cumsum(0)

    @property
    def y(self) -> Tensor:
        """The classes (N,)."""
        return torch.cat([domain.images.y for domain in self.domains])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def take(self, which: slice | Tensor) -> Images:
        """Return the images at some positions, from any of the domains, as floats in [0, 1].

        Args:
            which: A slice, or a tensor of positions in all domains together.

        Raises:
            BadData: If images of two domains differ in channels or size.
        """
        positions = torch.arange(len(self))[which]
        home = torch.searchsorted(self._ends, positions, right=True)
        parts, places = [], []
        by_shape: dict[torch.Size, str] = {}  # the first domain with images of a shape
        for number, domain in enumerate(self.domains):
            mine = (home == number).nonzero().flatten()
            if len(mine):
                part = domain.images.take(positions[mine] - (self._ends[number] - len(domain)))
                by_shape.setdefault(part.x.shape[1:], domain.name)
                parts.append(part)
                places.append(mine)
        _check_one_shape(by_shape)
        back = torch.cat(places).argsort()
        return Images(torch.cat([part.floats() for part in parts])[back], torch.cat([part.y for part in parts])[back])


def _check_one_shape(domains: dict[torch.Size, str]) -> None:
    if len(domains) > 1:
        (shape, name), (other, another), *_ = domains.items()
        raise BadData(
            f"Domains that are mixed need images (C, H, W) of one shape; {name} has {tuple(shape)} and {another} "
            f"{tuple(other)}. Resize the images to one size (--side resizes image files)."
        )
