"""CIFAR-100 as two npz files with its hundred fine classes, converted from its authors' binary files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ctta.datasets.array_files import read_npz, write_npz
from ctta.datasets.arrays import Images
from ctta.datasets.checks import images_of, labels_of
from ctta.datasets.cifar10 import pixels_of, read_records
from ctta.errors import BadData

CLASSES = 100
COUNTS = {"test": 10_000, "train": 50_000}


def load(folder: str | Path, part: str) -> Images:
    """Read the training or test images and check that every class has the expected number of images.

    Args:
        folder: The folder with `cifar100_train.npz` and `cifar100_test.npz`.
        part: "train" or "test".
    """
    path = Path(folder) / f"cifar100_{part}.npz"
    x, y = read_npz(path, hint=f"Get it with: ctta fetch cifar100 --to {folder}")
    found = Images(images_of(x, path), labels_of(y, path, count=len(x), classes=CLASSES))
    if set(found.y.bincount(minlength=CLASSES).tolist()) != {COUNTS[part] // CLASSES}:
        raise BadData(f"{path} does not hold the {COUNTS[part]} {part} images of CIFAR-100.")
    return found


def convert_binary(batches: Path, folder: Path) -> list[Path]:
    """Write `cifar100_test.npz` and `cifar100_train.npz` from the files of the unpacked binary archive.

    Args:
        batches: The folder with `train.bin` and `test.bin`.
        folder: The folder to write to.
    """
    written = []
    for part, count in COUNTS.items():
        # A coarse class, a fine class, the pixels.
        records = read_records(batches / f"{part}.bin", labels=2, name="cifar100")
        if len(records) != count:
            raise BadData(f"{batches / part}.bin must hold {count} images; got {len(records)}.")
        path = folder / f"cifar100_{part}.npz"
        write_npz(path, x=pixels_of(records), y=np.ascontiguousarray(records[:, 1]))
        written.append(path)
    return written
