"""Images in files, decoded when they are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ctta.errors import BadData, MissingData
from ctta.streams.arrays import Images

Prepare = Callable[[Image.Image, Path], Image.Image]
SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


class Pictures:
    """Labelled image files (N,), all prepared to one size."""

    def __init__(self, paths: Sequence[Path], y: Sequence[int], prepare: Prepare) -> None:
        self.paths, self.y, self.prepare = tuple(paths), torch.tensor(list(y), dtype=torch.long), prepare

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, which: slice | Tensor) -> Images:
        """The images at these positions, as uint8 (N, 3, H, W)."""
        positions = torch.arange(len(self))[which]
        paths = [self.paths[int(i)] for i in positions]
        pictures = [self.prepare(read_picture(path), path) for path in paths]
        for path, picture in zip(paths, pictures, strict=True):
            if picture.size != pictures[0].size:
                (width, height), (others, high) = picture.size, pictures[0].size
                raise BadData(
                    f"{path} is {width} x {height} pixels where others are {others} x {high}: "
                    "give a side to resize and crop all of them to."
                )
        x = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
        return Images(x.permute(0, 3, 1, 2), self.y[positions])


def read_picture(path: Path) -> Image.Image:
    """Decode an image file as RGB."""
    try:
        with Image.open(path) as image:
            if image.mode.startswith("I") or image.mode == "F":
                raise BadData(
                    f"{path} has more than 8 bits per channel (mode {image.mode}). Convert it to 8 bits first."
                )
            return image.convert("RGB")
    except FileNotFoundError as error:
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = str(error).split("\n", maxsplit=1)[0].rstrip(".")
        raise BadData(f"{path} cannot be decoded: {reason}.") from error


def as_it_is(image: Image.Image, path: Path) -> Image.Image:
    """Leave an image alone."""
    return image


def exactly(side: int) -> Prepare:
    """Refuse images that are not `side` x `side`."""
    return partial(_exactly, side)


def centre(side: int, *, resize: int | None = None) -> Prepare:
    """Resize the shorter side (by default to `side`), bilinear, and keep the central square of `side` pixels."""
    return partial(_centre, side, side if resize is None else resize)


def listed(folder: Path) -> list[Path]:
    """The image files directly in a folder, by name."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.name[0] != "." and p.is_file())


def folders(folder: Path) -> list[Path]:
    """The folders directly in a folder, by name; hidden ones left out."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _exactly(side: int, image: Image.Image, path: Path) -> Image.Image:
    if image.size != (side, side):
        raise BadData(f"{path} must be {side} x {side} pixels; got {image.size[0]} x {image.size[1]}.")
    return image


def _centre(side: int, shorter: int, image: Image.Image, path: Path) -> Image.Image:
    width, height = image.size
    scale = shorter / min(width, height)
    if scale != 1:
        # The shorter side exactly, the longer one truncated, as torchvision does.
        size = (shorter, int(shorter * height / width)) if width <= height else (int(shorter * width / height), shorter)
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((image.width - side) / 2), round((image.height - side) / 2)
    return image.crop((left, top, left + side, top + side))
