"""Real images and weights, which are not part of the project: found next to it or in CTTA_SHARED."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

FOLDER = Path(os.environ.get("CTTA_SHARED", Path(__file__).resolve().parents[3] / "shared" / "data"))


def shared_file(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{name} is not in {FOLDER}; set CTTA_SHARED to the folder that has it")
    return path


def cifar(name: str, count: int) -> tuple[Tensor, Tensor]:
    with np.load(shared_file(f"{name}_test.npz")) as data:
        x, y = data["x"][:count], data["y"][:count]
    return torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(y).long()
