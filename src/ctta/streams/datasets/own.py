"""A user's own images: folders `domain/class/*`, or one npz per domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta.errors import BadData, MissingData
from ctta.files import printable
from ctta.sequences import names_of, paths_of
from ctta.streams.arrays import Images
from ctta.streams.datasets.checks import images_of, labels_of, refuse_out_of_range
from ctta.streams.datasets.files import read_npz
from ctta.streams.datasets.pictures import Pictures, as_it_is, centre, folders, listed
from ctta.streams.domain import Domain


def image_folder(
    folder: str | Path,
    domains: str | Sequence[str] | None = None,
    *,
    classes: str | Sequence[str] | None = None,
    side: int | None = None,
) -> list[Domain]:
    """The images of `domain/class/*`, domains in alphabetical order unless they are given.

    A class is the position of its folder's name among all of them in alphabetical order, or in `classes`. With `side`
    images are resized by their shorter side and cropped to the central square; without it all must have one size.
    """
    root = Path(folder)
    if not root.is_dir():
        raise MissingData(f"{root.absolute()} is not a folder. It must hold one folder per domain: domain/class/*.png.")
    names = [path.name for path in folders(root)] if domains is None else names_of(domains, "domains")
    for name in names:
        if not (root / name).is_dir():
            raise MissingData(f"The domain {name} is not in {root.absolute()}.")
    # Of every domain, wanted or not: a class must have one number whichever domains are read.
    every = sorted({c.name for d in folders(root) for c in folders(d)})
    order = every if classes is None else list(names_of(classes, "classes"))
    number = {name: index for index, name in enumerate(order)}
    prepare = as_it_is if side is None else centre(side)
    found = []
    for name in names:
        paths: list[Path] = []
        y: list[int] = []
        for place in folders(root / name):
            if place.name not in number:
                raise BadData(f"{place} is not one of the {len(order)} classes.")
            pictures = listed(place)
            paths += pictures
            y += [number[place.name]] * len(pictures)
        if not paths:
            raise MissingData(f"The domain {name} in {root.absolute()} has no images in folders {name}/class.")
        found.append(Domain(printable(name), 0, Pictures(paths, y, prepare), files=tuple(paths)))
    if not found:
        raise MissingData(f"{root.absolute()} is empty. It must hold one folder per domain: domain/class/*.png.")
    return found


def own_arrays(paths: str | Path | Sequence[str | Path], *, classes: int | None = None) -> list[Domain]:
    """One domain per npz with `x`, images (N, H, W, 3) or (N, 3, H, W), and `y`; named after the file."""
    found = []
    for path in paths_of(paths, "paths"):
        x, y = read_npz(path, hint="Save your images with np.savez(path, x=images, y=labels).")
        images = images_of(x, path)
        refuse_out_of_range(images, path)
        labelled = Images(images, labels_of(y, path, count=len(x), classes=classes))
        found.append(Domain(printable(path.stem), 0, labelled, files=(path,)))
    return found
