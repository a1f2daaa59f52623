"""ImageNet-C: `<corruption>/<severity>/<synset>/ILSVRC2012_val_*.JPEG`, 224 x 224 pixels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ctta._checks.sequences import names_of, numbers_of
from ctta._system.files import is_file
from ctta.corruptions import CORRUPTIONS
from ctta.datasets.domain import Domain, Origin
from ctta.datasets.lists import read_lines
from ctta.datasets.manifest import read_manifest
from ctta.datasets.pictures import Pictures, exactly, folders, listed
from ctta.errors import BadData, MissingData

CLASSES = 1000
GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}


def imagenet_c(
    folder: str | Path,
    corruptions: str | Sequence[str] = CORRUPTIONS,
    severities: int | Iterable[int] = (5,),
    *,
    images: str | Path | None = None,
    synsets: str | Sequence[str] | None = None,
    side: int = 224,
) -> list[Domain]:
    """Open the published ImageNet-C, or one that `ctta corrupt` made.

    A class is the position of its synset among the 1,000 in alphabetical order, or in ``synsets``.

    Args:
        folder: The folder with `<corruption>/<severity>`, directly or inside the published groups such as `noise`.
        corruptions: One or more names of corruptions; by default the 15 of the benchmark.
        severities: One or more severities from 1 to 5.
        images: A text file with lines `synset/file`, such as RobustBench's `imagenet_test_image_ids.txt` with 5,000
            images. None takes all files, ordered by synset and name.
        synsets: The synsets in the order of the classes; by default the 1,000 folders in alphabetical order.
        side: The width and height in pixels that every image must have.
    """
    root = Path(folder)
    origin: Origin = "unverified" if read_manifest(root) is None else "generated"
    wanted = None if images is None else _read_list(Path(images))
    domains, levels = [], numbers_of(severities, "severities")
    given = None if synsets is None else names_of(synsets, "synsets")
    for name in names_of(corruptions, "corruptions"):
        for severity in levels:
            folder = _folder_of(root, name, severity)
            order = given if given is not None else _synsets(folder)
            paths, y = _files(folder, order) if wanted is None else _chosen(folder, order, wanted, Path(str(images)))
            pictures = Pictures(paths, y, exactly(side))
            domains.append(Domain(name, severity, pictures, origin, files=tuple(paths)))
    return domains


def _folder_of(root: Path, name: str, severity: int) -> Path:
    group = next((group for group, members in GROUPS.items() if name in members), "")
    for folder in (root / name / str(severity), root / group / name / str(severity)):
        if folder.is_dir():
            return folder
    archive = f" It is in {group}.tar: ctta fetch imagenet-c-{group} --to {root}." if group else ""
    raise MissingData(f"{name}/{severity} is not in {root.absolute()}.{archive}")


def _synsets(folder: Path) -> tuple[str, ...]:
    found = tuple(path.name for path in folders(folder))
    if len(found) != CLASSES:
        raise BadData(
            f"{folder} must hold {CLASSES} synset folders, whose order is the class; got {len(found)}. "
            "Give the order with synsets=[...] for a part of the classes. For images of your own, name their folder "
            "as the stream: ctta run METHOD FOLDER."
        )
    return found


def _files(folder: Path, order: Sequence[str]) -> tuple[list[Path], list[int]]:
    paths: list[Path] = []
    y: list[int] = []
    for index, synset in enumerate(order):
        found = listed(folder / synset) if (folder / synset).is_dir() else []
        paths += found
        y += [index] * len(found)
    if not paths:
        raise MissingData(f"{folder} holds no images in the folders {order[0]} to {order[-1]}.")
    return paths, y


def _chosen(folder: Path, order: Sequence[str], wanted: list[str], source: Path) -> tuple[list[Path], list[int]]:
    index = {synset: i for i, synset in enumerate(order)}
    unknown = [line for line in wanted if line.partition("/")[0] not in index]
    if unknown:
        raise BadData(f"{source} names {unknown[0]}, whose synset is not among the {len(order)} of {folder}.")
    paths = [folder / line for line in wanted]
    missing = [path for path in paths if not is_file(path)]
    if missing:
        raise MissingData(
            f"{len(missing)} of the {len(paths)} images of {source} are not in {folder}: {missing[0].name}, ..."
        )
    return paths, [index[line.partition("/")[0]] for line in wanted]


def _read_list(path: Path) -> list[str]:
    if not is_file(path):
        raise MissingData(
            f"{path.name} is not in {path.parent.absolute()}. RobustBench publishes its 5,000 images as "
            "robustbench/data/imagenet_test_image_ids.txt on GitHub."
        )
    lines = [line.strip() for line in read_lines(path) if line.strip()]
    wrong = [line for line in lines if not _names_an_image(line)]
    if not lines or wrong:
        raise BadData(f"{path} must have lines synset/file; got {wrong[0][:60] if wrong else 'an empty file'!r}.")
    return lines


def _names_an_image(line: str) -> bool:
    # Exactly two parts, so that the part before the slash is the synset.
    synset, slash, name = line.partition("/")
    return bool(synset and slash and name) and "/" not in name and ".." not in line and not line.startswith("<")
