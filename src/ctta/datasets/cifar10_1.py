"""CIFAR-10.1: `cifar10.1_<version>_data.npy` and `cifar10.1_<version>_labels.npy`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctta._checks.sequences import names_of
from ctta.datasets.array_files import read_npy
from ctta.datasets.arrays import Images
from ctta.datasets.checks import images_of, labels_of, same_shape
from ctta.datasets.domain import Domain
from ctta.errors import ParameterError

CLASSES = 10
#: Number of images in each version; v6 has equally many of every class.
VERSIONS = {"v4": 2021, "v6": 2000}
_HINT = "Its files are in the folder datasets of github.com/modestyachts/CIFAR-10.1."


def cifar10_1(folder: str | Path, versions: str | Sequence[str] = ("v6",)) -> list[Domain]:
    """Open CIFAR-10.1 (Recht et al., 2018), new test images of CIFAR-10's classes.

    Args:
        folder: The folder of the npy files.
        versions: One or both of "v4" and "v6", each a domain.
    """
    domains = []
    for version in names_of(versions, "versions"):
        if version not in VERSIONS:
            raise ParameterError(f"CIFAR-10.1 has the versions {' and '.join(VERSIONS)}. Got {version!r} instead.")
        path = Path(folder) / f"cifar10.1_{version}_data.npy"
        labels = Path(folder) / f"cifar10.1_{version}_labels.npy"
        x = read_npy(path, hint=_HINT)
        same_shape(x, (VERSIONS[version], 32, 32, 3), path)
        y = labels_of(read_npy(labels, hint=_HINT), labels, count=len(x), classes=CLASSES)
        domains.append(Domain(version, 0, Images(images_of(x, path), y), files=(path, labels)))
    return domains
