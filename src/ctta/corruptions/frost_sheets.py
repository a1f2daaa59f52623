"""Frost textures: the photographs in the PyPI package `imagecorruptions`, or procedural ones."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from ctta.corruptions.frost_drawing import PANES, draw_pane

PHOTOGRAPHS = "imagecorruptions photographs"
PROCEDURAL = "procedural"
_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def frost_source() -> str:
    """Return which frost textures are used: "imagecorruptions photographs" if installed, else "procedural"."""
    return PHOTOGRAPHS if _photographs() else PROCEDURAL


def sheets(zoom: float, height: int, width: int) -> tuple[Tensor, ...]:
    """Return the five frost textures, (3, h, w) uint8.

    Args:
        zoom: Scale of the textures; raised if an image would not fit into one.
        height: Height of the images, in pixels.
        width: Width of the images, in pixels.
    """
    return _sheets(_photographs(), zoom, height, width)


@lru_cache(maxsize=8)
def _sheets(files: tuple[Path, ...], zoom: float, height: int, width: int) -> tuple[Tensor, ...]:
    return tuple(_resize(pane, zoom, height, width) for pane in _panes(files))


@lru_cache(maxsize=1)
def _panes(files: tuple[Path, ...]) -> tuple[Tensor, ...]:
    return tuple(_load(file) for file in files) or tuple(draw_pane(i) for i in range(PANES))


@lru_cache(maxsize=1)
def _photographs() -> tuple[Path, ...]:
    spec = find_spec("imagecorruptions")
    for location in (spec.submodule_search_locations or []) if spec else []:
        files = tuple(Path(location) / "frost" / name for name in _FILES)
        if all(file.is_file() for file in files):
            return files
    return ()


def _load(file: Path) -> Tensor:
    with Image.open(file, formats=("JPEG", "PNG")) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def _resize(pane: Tensor, zoom: float, height: int, width: int) -> Tensor:
    zoom = max(zoom, (height + 1) / pane.shape[1], (width + 1) / pane.shape[2])
    if zoom == 1:
        return pane.contiguous()
    size = (round(pane.shape[1] * zoom), round(pane.shape[2] * zoom))
    resized = interpolate(pane[None].float(), size, mode="bilinear", align_corners=False)[0]
    return resized.round().to(torch.uint8)
