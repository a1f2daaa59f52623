"""DomainNet-126: lists `<domain>_list.txt` with lines `path label`; from real to clipart, painting and sketch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta._checks.sequences import names_of
from ctta._system.files import is_file
from ctta.datasets.domain import Domain
from ctta.datasets.lists import read_lines
from ctta.datasets.pictures import Pictures, centre
from ctta.errors import BadData, MissingData

CLASSES = 126
TARGETS = ("clipart", "painting", "sketch")
_HINT = (
    "The images are DomainNet's (cleaned version, ai.bu.edu/M3SDA), one folder per domain; the lists of 126 classes "
    "come with SSDA_MME and AdaContrast on GitHub. Put both into one folder, or give lists=..."
)


def domainnet126(
    folder: str | Path, domains: str | Sequence[str] = TARGETS, *, lists: str | Path | None = None
) -> list[Domain]:
    """Open DomainNet-126, with the shorter side of each image resized to 256 pixels and the central 224 kept.

    Args:
        folder: The folder that the paths in the lists start from, with one folder for each domain.
        domains: One or more names of domains, by default clipart, painting and sketch.
        lists: The folder with the lists `<domain>_list.txt`; by default ``folder``.
    """
    root = Path(folder)
    found = []
    for name in names_of(domains, "domains"):
        paths, y = _read_list(Path(root if lists is None else lists) / f"{name}_list.txt", root)
        pictures = Pictures(paths, y, centre(224, resize=256))
        found.append(Domain(name, 0, pictures, files=tuple(paths)))
    return found


def _read_list(path: Path, root: Path) -> tuple[list[Path], list[int]]:
    if not is_file(path):
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}. {_HINT}")
    paths: list[Path] = []
    y: list[int] = []
    for number, line in enumerate(read_lines(path), start=1):
        name, _, label = line.rstrip().rpartition(" ")
        if not line.strip():
            continue
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if not name or not (label.isascii() and label.isdecimal()) or not inside:
            raise BadData(f"{path}, line {number}: a line must be 'path label'; got {line[:60]!r}.")
        # Check the length first: Python refuses to convert thousands of digits.
        if len(label) > 9 or int(label) >= CLASSES:
            raise BadData(f"{path}, line {number}: a label must be a class in 0..{CLASSES - 1}; got {label[:20]}.")
        paths.append(root / name)
        y.append(int(label))
    if not paths:
        raise BadData(f"{path} is empty.")
    missing = [picture for picture in paths if not is_file(picture)]
    if missing:
        raise MissingData(
            f"{len(missing)} of the {len(paths)} images of {path.name} are not there: {missing[0]}. {_HINT}"
        )
    return paths, y
