"""PACS: `<domain>/<class>/*`, seven classes; from photo to art_painting, cartoon and sketch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta._checks.sequences import names_of
from ctta.datasets.domain import Domain
from ctta.datasets.folder import image_folder
from ctta.errors import MissingData

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
#: The target domains of a model trained on photo, in the usual order.
TARGETS = ("art_painting", "cartoon", "sketch")
#: Side of the images in pixels, unless another is wanted.
SIDE = 224
_HINT = "PACS (Li et al., 2017) is described at domaingeneralization.github.io."


def pacs(folder: str | Path, domains: str | Sequence[str] = TARGETS, *, side: int = SIDE) -> list[Domain]:
    """Open PACS, with the shorter side of each image resized and the central square kept.

    Args:
        folder: The folder of the domains, or one that holds it as `kfold` or `PACS`.
        domains: One or more names of domains, by default art_painting, cartoon and sketch; photo is the source.
        side: Side of the images in pixels.
    """
    root = Path(folder)
    for name in ("PACS", "kfold"):
        root = root / name if (root / name).is_dir() else root
    wanted = names_of(domains, "domains")
    for name in wanted:
        if not (root / name).is_dir():
            raise MissingData(f"The domain {name} is not in {root.absolute()}. {_HINT}")
    return image_folder(root, wanted, classes=CLASSES, side=side)
