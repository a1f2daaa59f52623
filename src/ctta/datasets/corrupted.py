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
        corruptions: One or more names of corruptions; by default the 15 of the benchmark.
        severities: One or more severities from 1 to 5.
        seed: Seed of the random numbers.
        scale: "cifar" or "imagenet", whose published constants to use; None chooses or interpolates them by image size.
        keep: Whether to corrupt a whole domain at once and hold it in memory, for streams that several methods read.
    """
    domains, levels = [], numbers_of(severities, "severities")
    check_seed(seed)
    for name in names_of(corruptions, "corruptions"):
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
        """
        positions = torch.arange(len(self))[which]
        home = torch.searchsorted(self._ends, positions, right=True)
        parts, places = [], []
        for number, domain in enumerate(self.domains):
            mine = (home == number).nonzero().flatten()
            if len(mine):
                parts.append(domain.images.take(positions[mine] - (self._ends[number] - len(domain))))
                places.append(mine)
        back = torch.cat(places).argsort()
        return Images(torch.cat([part.floats() for part in parts])[back], torch.cat([part.y for part in parts])[back])
