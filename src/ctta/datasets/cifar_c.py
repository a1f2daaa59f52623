"""CIFAR-10-C, CIFAR-100-C and the like: one npy per corruption with the severities stacked, and labels.npy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ctta._checks.sequences import names_of, numbers_of
from ctta._system.digests import md5_of
from ctta.corruptions import CORRUPTIONS
from ctta.datasets.array_files import read_npy
from ctta.datasets.arrays import Images
from ctta.datasets.checks import images_of, labels_of, same_shape
from ctta.datasets.domain import Domain, Origin
from ctta.datasets.manifest import NAME, read_manifest, stacked_severities
from ctta.datasets.published import CIFAR10_C, CIFAR100_C
from ctta.errors import BadData, MissingData, ParameterError

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class _Layout:
    classes: int
    digests: dict[str, str]
    hint: str


_CIFAR10_C = _Layout(10, CIFAR10_C, "Get it with: ctta fetch cifar10-c --to DIR, and name the folder DIR/CIFAR-10-C.")
_CIFAR100_C = _Layout(100, CIFAR100_C, "Get it with: ctta fetch cifar100-c --to DIR, and name DIR/CIFAR-100-C.")


def cifar10_c(
    folder: str | Path,
    corruptions: str | Sequence[str] = CORRUPTIONS,
    severities: int | Iterable[int] = (5,),
    *,
    verify: bool = False,
) -> list[Domain]:
    """Open the published CIFAR-10-C, or one that `ctta corrupt` made.

    Args:
        folder: The folder with `labels.npy` and one npy for each corruption.
        corruptions: One or more names of corruptions; by default the 15 of the benchmark.
        severities: One or more severities from 1 to 5.
        verify: Whether to compare the MD5 of every file read with the published one; a folder that `ctta corrupt`
            made is then refused.
    """
    return _stacked(Path(folder), corruptions, severities, _CIFAR10_C, verify=verify)


def cifar100_c(
    folder: str | Path,
    corruptions: str | Sequence[str] = CORRUPTIONS,
    severities: int | Iterable[int] = (5,),
    *,
    verify: bool = False,
) -> list[Domain]:
    """Open the published CIFAR-100-C, or one that `ctta corrupt` made.

    Args:
        folder: The folder with `labels.npy` and one npy for each corruption.
        corruptions: One or more names of corruptions; by default the 15 of the benchmark.
        severities: One or more severities from 1 to 5.
        verify: Whether to compare the MD5 of every file read with the published one; a folder that `ctta corrupt`
            made is then refused.
    """
    return _stacked(Path(folder), corruptions, severities, _CIFAR100_C, verify=verify)


def own_c(
    folder: str | Path,
    corruptions: str | Sequence[str] = CORRUPTIONS,
    severities: int | Iterable[int] = (5,),
) -> list[Domain]:
    """Open the arrays that `ctta corrupt` made from a user's own array.

    Args:
        folder: The output folder of `ctta corrupt`.
        corruptions: One or more names of corruptions; by default the 15 of the benchmark.
        severities: One or more of the severities that the folder holds.
    """
    if read_manifest(Path(folder)) is None:
        raise MissingData(f"{NAME} is not in {Path(folder).absolute()}: ctta corrupt did not make this folder.")
    return _stacked(Path(folder), corruptions, severities, None, verify=False)


def _stacked(
    folder: Path,
    corruptions: str | Sequence[str],
    severities: int | Iterable[int],
    layout: _Layout | None,
    *,
    verify: bool,
) -> list[Domain]:
    corruptions, levels = names_of(corruptions, "corruptions"), numbers_of(severities, "severities")
    manifest = read_manifest(folder)
    if manifest is not None and verify:
        raise BadData(f"{folder} was made by ctta corrupt (see {NAME}): it is not the published data.")
    stacked = SEVERITIES if manifest is None else stacked_severities(manifest, folder)
    hint = (
        layout.hint if layout is not None and manifest is None else "Run ctta corrupt again: it makes what is missing."
    )
    origin: Origin = "generated" if manifest is not None else "published" if verify else "unverified"
    labels = _labels(folder / "labels.npy", layout, hint)
    if manifest is None and len(labels) != 50_000:
        raise BadData(f"{folder / 'labels.npy'} must be 50000 labels; got {len(labels)}.")
    if len(labels) % len(stacked):
        raise BadData(
            f"{folder / 'labels.npy'} must have as many labels at each of {len(stacked)} severities; got {len(labels)}."
        )
    each = len(labels) // len(stacked)
    if verify and layout is not None:
        for name in ("labels", *corruptions):
            _verify(folder / f"{name}.npy", layout.digests.get(name), hint)
    domains = []
    beside = (folder / "labels.npy",) if manifest is None else (folder / "labels.npy", folder / NAME)
    for name in corruptions:
        path = folder / f"{name}.npy"
        x = read_npy(path, hint=hint)
        same_shape(x, (len(labels), *(x.shape[1:] if layout is None else (32, 32, 3))), path)
        for severity in levels:
            if severity not in stacked:
                raise ParameterError(f"{folder} has the severities {', '.join(map(str, stacked))}. Got {severity}.")
            begin = stacked.index(severity) * each
            part = slice(begin, begin + each)
            images = Images(images_of(x[part], path), labels[part])
            domains.append(Domain(name, severity, images, origin, files=(path, *beside)))
    return domains


def _labels(path: Path, layout: _Layout | None, hint: str) -> Tensor:
    y = read_npy(path, hint=hint)
    return labels_of(y, path, count=y.shape[0] if y.ndim else 0, classes=None if layout is None else layout.classes)


def _verify(path: Path, published: str | None, hint: str) -> None:
    if not path.is_file():
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}. {hint}")
    if published is None:
        raise BadData(f"{path} is not a published file: no digest is known for it.")
    found = md5_of(path)
    if found != published:
        raise BadData(f"{path} is not the published file: md5 {found}, not {published}.")
