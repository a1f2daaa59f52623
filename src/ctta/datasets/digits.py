"""The handwritten digits bundled with scikit-learn, as 32 x 32 images.

The test part of the UCI "Optical Recognition of Handwritten Digits" set (Alpaydin & Kaynak 1998): 1,797 digits of
8 x 8 cells, each with 0 to 16 inked pixels.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from ctta.datasets.arrays import Images
from ctta.errors import MissingExtra

TRAIN = 897


class Digits(NamedTuple):
    """Training digits, and other digits to stream."""

    train: Images
    stream: Images


def digits() -> Digits:
    """The first 897 digits of the file to train on, the last 900 to stream.

    Not shuffled: neighbours in the file tend to be by the same writer, and a shuffled split would stream digits by
    writers seen in training.
    """
    table = torch.from_numpy(_table())
    images = Images(enlarge(table[:, :-1].reshape(-1, 8, 8)), table[:, -1].long())
    return Digits(images.take(slice(TRAIN)), images.take(slice(TRAIN, None)))


def _table() -> NDArray[np.float64]:
    """Return one row for each digit: its 64 cells, and its class."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise MissingExtra("scikit-learn", "demo")
    # Importing the package takes longer than everything else in the demo of a service.
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # noqa: PLC0415 - an optional dependency

    found = load_digits()
    return np.column_stack([found.data, found.target]).astype(np.float64)


def enlarge(cells: Tensor) -> Tensor:
    """Enlarge digits to RGB images (N, 3, 32, 32), uint8, by bilinear interpolation.

    Every intermediate value is exact in single precision, so the images are the same on every machine.

    Args:
        cells: Digits (N, 8, 8) with values from 0 to 16.
    """
    smooth = interpolate(cells.float().unsqueeze(1), scale_factor=4, mode="bilinear")
    return (smooth * 255 / 16).round().to(torch.uint8).expand(-1, 3, -1, -1).contiguous()
