"""Open a user's own data in any of the known layouts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta._system.files import is_file, printable
from ctta.datasets.cifar_c import own_c
from ctta.datasets.domain import Domain, Origin
from ctta.datasets.folder import choose_domains, class_order, contents, image_folder, own_arrays, refuse_side
from ctta.datasets.manifest import NAME, read_manifest
from ctta.datasets.pictures import Pictures, as_it_is, centre, folders, listed_below, picture_folders
from ctta.errors import BadData, MissingData, ParameterError

_LAYOUTS = (
    "It must hold what ctta corrupt writes, one folder per domain (domain/class/*.png), or one npz per domain with "
    "images x and classes y."
)


def open_by_layout(
    path: Path, domains: Sequence[str] | None, severities: Sequence[int], *, side: int | None = None
) -> list[Domain]:
    """Open a folder that `ctta corrupt` wrote, a folder `domain/class/*`, a folder of npz files, or one npz.

    Args:
        path: The folder or file.
        domains: The corruptions or domains to open, in this order; None means all.
        severities: The severities to open, if the domains are corruptions.
        side: The side in pixels to resize and crop image files to; None leaves them as they are.

    Raises:
        MissingData: If nothing is there, the folder has none of these layouts, or a domain is missing.
        BadData: If a file is damaged, or the class of an image is not known.
    """
    if is_file(path):
        return _arrays(path, [path], domains, side)
    if not path.is_dir():
        raise MissingData(f"There is no file or folder {path.absolute()}.")
    manifest = read_manifest(path)
    made = _names(None if manifest is None else manifest.get("corruptions"))
    if manifest is not None and manifest.get("format") == "npy":
        refuse_side(side, path)
        there = [name for name in made if is_file(path / f"{name}.npy")]
        return own_c(path, choose_domains(path, there, domains, hint=_LAYOUTS), severities)
    if manifest is not None or _is_corrupted_folder(path):
        there = [inner.name for inner in folders(path) if _levels(inner)]
        # In the order in which they were made, or by name if that is not known.
        there.sort(key=lambda name: made.index(name) if name in made else len(made))
        origin: Origin = "unverified" if manifest is None else "generated"
        chosen = choose_domains(path, there, domains, hint=_LAYOUTS)
        return corrupted_folder(path, chosen, severities, side=side, origin=origin)
    if found := sorted(file for file in path.glob("*.npz") if not file.name.startswith(".") and is_file(file)):
        return _arrays(path, found, domains, side)
    if not folders(path):
        published = is_file(path / "labels.npy")
        hint = f" Arrays without {NAME} are read as ctta run METHOD cifar10-c --data {path}." if published else ""
        raise MissingData(f"{path.absolute()} {contents(path)}. {_LAYOUTS}{hint}")
    return image_folder(path, None if domains is None else tuple(domains), side=side)


def corrupted_folder(
    folder: Path, corruptions: Sequence[str], severities: Sequence[int], *, side: int | None, origin: Origin
) -> list[Domain]:
    """Open the images of `corruption/severity/.../class/*`; the class is the name of the folder that holds the image.

    Args:
        folder: The folder of the corruptions.
        corruptions: The corruptions to open, in this order.
        severities: The severities of each.
        side: The side in pixels to resize and crop images to; None leaves them as they are.
        origin: Where the images come from.
    """
    parts = [(name, severity, _images_in(folder / name, severity)) for name in corruptions for severity in severities]
    # Collected from every part, requested or not: a class must have the same number whichever parts are read.
    every = {c.name for inner in folders(folder) for level in _levels(inner) for c in picture_folders(inner / level)}
    order = class_order(folder, every)
    number = {name: index for index, name in enumerate(order)}
    prepare = as_it_is if side is None else centre(side)
    return [
        Domain(
            printable(name),
            severity,
            Pictures(paths, [number[path.parent.name] for path in paths], prepare),
            origin,
            files=tuple(paths),
            classes=len(order),
            class_names=order,
        )
        for name, severity, paths in parts
    ]


def _images_in(folder: Path, severity: int) -> list[Path]:
    """Return the images of a corruption at one severity, all of which must be in class folders."""
    inner = folder / str(severity)
    if not inner.is_dir():
        raise ParameterError(f"{folder} has the severities {', '.join(_levels(folder)) or 'none'}. Got {severity}.")
    paths = listed_below(inner)
    if not paths:
        raise MissingData(f"{inner} holds no images.")
    if loose := next((path for path in paths if path.parent == inner), None):
        raise BadData(
            f"{loose} is in no class folder, so its class is not known. Put images into folders named after their "
            "classes before you corrupt them."
        )
    return paths


def _arrays(folder: Path, files: Sequence[Path], domains: Sequence[str] | None, side: int | None) -> list[Domain]:
    refuse_side(side, folder)
    by_name = {printable(file.stem): file for file in files}
    return own_arrays([by_name[name] for name in choose_domains(folder, list(by_name), domains)])


def _is_corrupted_folder(folder: Path) -> bool:
    """Whether a folder has the layout `corruption/severity/class/*`: one level more than `domain/class/*`."""
    first = next(iter(folders(folder)), None)
    levels = [] if first is None else _levels(first)
    return bool(levels) and first is not None and all(folders(first / level) for level in levels)


def _levels(folder: Path) -> list[str]:
    """Return the severities that a folder has, as the names of its folders."""
    names = [path.name for path in folders(folder)] if folder.is_dir() else []
    return names if names and set(names) <= {"1", "2", "3", "4", "5"} else []


def _names(value: object) -> list[str]:
    """Return the names that a manifest lists; a damaged manifest lists none."""
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
