"""A user's own images: folders `domain/class/*`, or one npz per domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta._checks.numbers import check_side
from ctta._checks.sequences import names_of, path_of, paths_of
from ctta._system.files import is_file, printable
from ctta.datasets.array_files import read_npz
from ctta.datasets.arrays import Images
from ctta.datasets.checks import images_of, labels_of, refuse_out_of_range
from ctta.datasets.domain import Domain
from ctta.datasets.lists import read_lines
from ctta.datasets.pictures import Pictures, as_it_is, centre, folders, listed
from ctta.errors import BadData, MissingData, ParameterError

#: A file that lists the names of the classes in the order of the model's logits, one per line.
CLASS_LIST = "classes.txt"


def image_folder(
    folder: str | Path,
    domains: str | Sequence[str] | None = None,
    *,
    classes: str | Sequence[str] | None = None,
    side: int | None = None,
) -> list[Domain]:
    """Open the images of `domain/class/*`.

    Args:
        folder: The folder of the domains.
        domains: The domains to open, in this order; by default all of them in alphabetical order.
        classes: The names of the class folders in the order of the model's logits. By default the lines of
            `classes.txt` in ``folder``, or else all names in alphabetical order.
        side: The side in pixels to resize and crop images to; without it all must have one size.
    """
    root = path_of(folder, "folder")
    check_side(side)
    if not root.is_dir():
        raise MissingData(f"{root.absolute()} is not a folder. It must hold one folder per domain: domain/class/*.png.")
    # By printed name, which is the one that messages and records show.
    there = {printable(path.name): path for path in folders(root)}
    names = tuple(there) if domains is None else tuple(printable(name) for name in names_of(domains, "domains"))
    if missing := [name for name in names if name not in there]:
        listing = ", ".join(there) or "no folders"
        raise MissingData(f"The domain {missing[0]} is not in {root.absolute()}, which has: {listing}.")
    # Collected from every domain, requested or not: a class must have the same number whichever domains are read.
    every = {c.name for domain in there.values() for c in folders(domain)}
    order = class_order(root, every) if classes is None else names_of(classes, "classes")
    number = {name: index for index, name in enumerate(order)}
    prepare = as_it_is if side is None else centre(side)
    found = []
    for name in names:
        paths: list[Path] = []
        y: list[int] = []
        for inner in folders(there[name]):
            if inner.name not in number:
                raise BadData(f"{inner} is not one of the {len(order)} classes.")
            pictures = listed(inner)
            paths += pictures
            y += [number[inner.name]] * len(pictures)
        if not paths and listed(there[name]):
            raise MissingData(
                f"{root.absolute()} looks like class/*: the images are directly in {name}/. It must hold "
                "one folder per domain: domain/class/*.png. Move its class folders into a folder named after their "
                f"domain, such as {printable(root.absolute().name)}/domain/{name}/."
            )
        if not paths:
            raise MissingData(f"The domain {name} in {root.absolute()} has no images in folders {name}/class.")
        found.append(
            Domain(
                name,
                0,
                Pictures(paths, y, prepare),
                files=tuple(paths),
                classes=len(order),
                class_names=order,
            )
        )
    if not found:
        raise MissingData(
            f"{root.absolute()} {contents(root)}. It must hold one folder per domain: domain/class/*.png."
        )
    return found


def choose_domains(
    folder: Path, there: Sequence[str], wanted: str | Sequence[str] | None, *, what: str = "domains", hint: str = ""
) -> tuple[str, ...]:
    """Return the wanted domains of a folder, or all if none are named.

    Args:
        folder: The folder, for messages.
        there: The domains that it has.
        wanted: The names that the user gave, if any.
        what: What messages call the domains.
        hint: What the folder must hold; appended to the message if it has no domains.

    Raises:
        MissingData: If the folder has no domains, or lacks one that is wanted.
    """
    if not there:
        raise MissingData(f"{folder.absolute()} holds no {what}. {hint}".rstrip())
    chosen = tuple(there) if wanted is None else names_of(wanted, what)
    if missing := [name for name in chosen if name not in there]:
        raise MissingData(f"{missing[0]} is not in {folder.absolute()}, which has: {', '.join(there)}.")
    return chosen


def own_arrays(paths: str | Path | Sequence[str | Path], *, classes: int | None = None) -> list[Domain]:
    """Open one domain per npz, named after the file.

    Args:
        paths: Files with `x`, images (N, H, W, 3) or (N, 3, H, W), and `y`, their classes.
        classes: The number of classes; a label that is not below it is refused.
    """
    found = []
    for path in paths_of(paths, "paths"):
        found.append(Domain(printable(path.stem), 0, read_images(path, classes), files=(path,)))
    return found


def read_images(path: Path, classes: int | None = None) -> Images:
    """Read the labelled images of an npz.

    Args:
        path: A file with `x`, images (N, H, W, 3) or (N, 3, H, W), and `y`, their classes.
        classes: The number of classes; a label that is not below it is refused.
    """
    x, y = read_npz(path, hint="Save your images with np.savez(path, x=images, y=labels).")
    images = images_of(x, path)
    refuse_out_of_range(images, path)
    return Images(images, labels_of(y, path, count=len(x), classes=classes))


def class_order(folder: Path, names: set[str]) -> tuple[str, ...]:
    """Return class names in the order of the model's logits: that of `classes.txt`, or else alphabetical.

    Args:
        folder: The folder that may hold `classes.txt`.
        names: The names of the class folders.

    Raises:
        BadData: If `classes.txt` lacks one of them, or repeats a name.
    """
    path = folder / CLASS_LIST
    if not is_file(path):
        return tuple(sorted(names))
    order = tuple(line.strip() for line in read_lines(path) if line.strip())
    if missing := sorted(names - set(order)):
        raise BadData(f"{path} must list every class in the order of the model's logits; {missing[0]!r} is missing.")
    if len(set(order)) != len(order):
        raise BadData(f"{path} lists a class twice: {next(name for name in order if order.count(name) > 1)!r}.")
    return order


def refuse_side(side: int | None, folder: Path) -> None:
    """Refuse to resize arrays: only image files can be resized.

    Args:
        side: The side given by the user; anything but None is refused.
        folder: The dataset, for the message.
    """
    if side is not None:
        raise ParameterError(f"--side resizes image files; {folder} holds arrays. Leave out --side.")


def contents(folder: Path) -> str:
    """Describe what a folder holds, for messages.

    Args:
        folder: The folder; the message lists its first three names.
    """
    names = sorted(printable(path.name) for path in folder.iterdir())
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"holds {', '.join(names[:3])}{more}" if names else "is empty"
