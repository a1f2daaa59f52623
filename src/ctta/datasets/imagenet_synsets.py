"""The 1,000 synsets of ImageNet in the order of the classes, and folders that are named after them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ctta.datasets.pictures import folders, listed
from ctta.errors import BadData, MissingData

_FILE = Path(__file__).parents[1] / "data" / "imagenet_synsets.txt"


@lru_cache(maxsize=1)
def synsets() -> tuple[str, ...]:
    """Return the 1,000 synsets of ILSVRC 2012 such as n01440764; the class of a synset is its position."""
    return tuple(_FILE.read_text(encoding="ascii").split())


def synset_folders(folder: Path, count: int, hint: str) -> list[Path]:
    """Return the synset folders of a dataset, by class.

    Args:
        folder: The folder that holds them.
        count: How many there must be: with fewer, classes would be missing from the model's head.
        hint: Where to get the dataset; appended to the message if the folder is missing or has no synsets.

    Raises:
        MissingData: If there is no such folder, or it has no synset folders.
        BadData: If it has folders that are not synsets of ImageNet, or the wrong number of folders.
    """
    if not folder.is_dir():
        raise MissingData(f"{folder.absolute()} is not a folder. {hint}")
    found = folders(folder)
    known = set(synsets())
    if not any(path.name in known for path in found):
        raise MissingData(f"{folder.absolute()} has no folders named after synsets, such as {synsets()[0]}. {hint}")
    if unknown := [path.name for path in found if path.name not in known]:
        raise BadData(f"{folder} holds {unknown[0]}, which is not one of the {len(known)} synsets of ImageNet.")
    if len(found) != count:
        raise BadData(f"{folder} must hold {count} synset folders; got {len(found)}. Unpack the whole archive.")
    return found


def pictures_of(places: list[Path]) -> tuple[list[Path], list[int]]:
    """Return the images of class folders, and for each image the position of its folder.

    Args:
        places: The folders, in the order of the classes.

    Raises:
        MissingData: If none of them holds an image.
    """
    paths: list[Path] = []
    y: list[int] = []
    for number, place in enumerate(places):
        found = listed(place)
        paths += found
        y += [number] * len(found)
    if not paths:
        raise MissingData(f"{places[0].parent} holds no images in the folders {places[0].name} to {places[-1].name}.")
    return paths, y
