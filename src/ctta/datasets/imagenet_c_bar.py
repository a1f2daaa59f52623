"""ImageNet-C-bar: `<corruption>/<strength>/<synset>/*.JPEG`, ten other corruptions at five strengths each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ctta._checks.sequences import numbers_of
from ctta._system.files import printable
from ctta.datasets.domain import Domain
from ctta.datasets.folder import choose_domains
from ctta.datasets.imagenet_synsets import pictures_of, synset_folders
from ctta.datasets.pictures import Pictures, exactly, folders
from ctta.errors import BadData, MissingData, ParameterError

CLASSES = 1000
_HINT = "ImageNet-C-bar is described at github.com/facebookresearch/augmentation-corruption, which also makes it."


def imagenet_c_bar(
    folder: str | Path,
    corruptions: str | Sequence[str] | None = None,
    severities: int | Iterable[int] = (5,),
    *,
    side: int = 224,
) -> list[Domain]:
    """Open ImageNet-C-bar (Mintun et al., 2021).

    Its folders are named after the strength of the corruption, such as `2.40`, which differs between corruptions: a
    severity is the position of a strength among the five, the weakest first.

    Args:
        folder: The folder of the corruptions, or the one that holds `ImageNet-C-Bar`.
        corruptions: One or more of the corruptions that are there; by default all, in alphabetical order.
        severities: One or more severities from 1 to 5.
        side: The width and height in pixels that every image must have.
    """
    root = Path(folder)
    root = root / "ImageNet-C-Bar" if (root / "ImageNet-C-Bar").is_dir() else root
    if not root.is_dir():
        raise MissingData(f"{root.absolute()} is not a folder. {_HINT}")
    there = [path.name for path in folders(root)]
    wanted = choose_domains(root, there, corruptions, what="corruptions", hint=_HINT)
    domains, levels = [], numbers_of(severities, "severities")
    for name in wanted:
        strengths = _strengths(root / name)
        for severity in levels:
            if not 1 <= severity <= len(strengths):
                raise ParameterError(f"{name} has severities 1 to {len(strengths)}. Got {severity} instead.")
            paths, y = pictures_of(synset_folders(strengths[severity - 1], CLASSES, _HINT))
            images = Pictures(paths, y, exactly(side))
            domains.append(Domain(printable(name), severity, images, files=tuple(paths)))
    return domains


def _strengths(folder: Path) -> list[Path]:
    """The folders of a corruption, the weakest first."""
    found = folders(folder)
    try:
        ordered = sorted(found, key=lambda path: float(path.name))
    except ValueError:
        ordered = []
    if len(ordered) != 5:
        names = ", ".join(path.name for path in found[:6]) or "none"
        raise BadData(f"{folder} must hold five folders named after strengths, such as 2.40; got {names}.")
    return ordered
