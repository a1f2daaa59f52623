"""Images in files, decoded when they are taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from ctta._system.files import is_file
from ctta.datasets.arrays import Images
from ctta.errors import BadData, MissingData

Prepare = Callable[[Image.Image, Path], Image.Image]
# Formats are detected by content, whatever the suffix. Without a list, Pillow tries all formats it knows, and passes
# PostScript to Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

# Maximum pixels of an image that is resized whole (256 MB): a strip of 1 x 60,000 would need 9 GB if its shorter side
# became 256 pixels.
_RESIZED_WHOLE = 1 << 26


class Pictures:
    """Decode labelled image files as they are taken, all prepared to one size.

    Args:
        paths: The image files.
        y: The class of each file, an integer of at least 0.
        prepare: Applied to each decoded image, with its path for messages.
    """

    def __init__(self, paths: Sequence[Path], y: Sequence[int], prepare: Prepare) -> None:
        self.paths = tuple(paths)
        self.y = torch.tensor(list(y), dtype=torch.long)
        self.prepare = prepare

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, which: slice | Tensor) -> Images:
        """Return the images at some positions, as uint8 (N, 3, H, W).

        Args:
            which: A slice, or a tensor of positions.
        """
        positions = torch.arange(len(self))[which]
        paths = [self.paths[int(i)] for i in positions]
        pictures = [self.prepare(read_picture(path), path) for path in paths]
        for path, picture in zip(paths, pictures, strict=True):
            if picture.size != pictures[0].size:
                (width, height), (others, high) = picture.size, pictures[0].size
                raise BadData(
                    f"{path} is {width} x {height} pixels where others are {others} x {high}: "
                    "give a side to resize and crop all of them to (--side)."
                )
        x = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
        return Images(x.permute(0, 3, 1, 2), self.y[positions])


def read_picture(path: Path, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """Decode an image file as RGB.

    Args:
        path: The file.
        formats: The formats it may have, by Pillow's names.
    """
    try:
        with Image.open(path, formats=formats) as image:
            if image.mode.startswith("I") or image.mode == "F":
                raise BadData(
                    f"{path} has more than 8 bits per channel (mode {image.mode}). Convert it to 8 bits first."
                )
            return image.convert("RGB")
    except FileNotFoundError as error:
        raise MissingData(f"{path.name} is not in {path.parent.absolute()}.") from error
    except UnidentifiedImageError as error:
        raise BadData(f"{path} cannot be decoded: it is none of {', '.join(formats)}.") from error
    except BadData:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).split("\n", maxsplit=1)[0].rstrip(".")
        raise BadData(f"{path} cannot be decoded: {reason}.") from error


def as_it_is(image: Image.Image, path: Path) -> Image.Image:
    """Return an image unchanged.

    Args:
        image: The image.
        path: The file it is from; not used.
    """
    return image


def exactly(side: int) -> Prepare:
    """Return a function that refuses images of any other size.

    Args:
        side: The width and height they must have, in pixels.
    """
    return partial(_exactly, side)


def centre(side: int, *, resize: int | None = None) -> Prepare:
    """Return a function that resizes an image (bilinear) and keeps its central square.

    Args:
        side: The side of the square, in pixels.
        resize: The length to resize the shorter side to, in pixels; by default ``side``.
    """
    return partial(_centre, side, side if resize is None else resize)


def listed(folder: Path) -> list[Path]:
    """List the image files directly in a folder by name, without hidden ones.

    Args:
        folder: The folder.
    """
    return [path for path in _inside(folder) if _is_picture_name(path.name) and is_file(path)]


def listed_below(folder: Path) -> list[Path]:
    """List the image files in a folder and its subfolders by path, without hidden ones and those in hidden folders.

    Args:
        folder: The folder.
    """
    return sorted(inner / name for inner, names in _walk(folder) for name in names if is_file(inner / name))


def picture_folders(folder: Path) -> list[Path]:
    """List the folders below a folder that directly hold image files, without hidden ones.

    Args:
        folder: The folder; it is not listed itself.
    """
    return [inner for inner, names in _walk(folder) if names and inner != folder]


def folders(folder: Path) -> list[Path]:
    """List the folders directly in a folder by name, without hidden ones.

    Args:
        folder: The folder.
    """
    return [path for path in _inside(folder) if path.is_dir() and not path.name.startswith(".")]


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and those below it, each with the names of its image files; without hidden ones."""
    for inner, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith(".")]  # os.walk enters only those that stay
        yield Path(inner), [name for name in names if _is_picture_name(name)]


def _is_picture_name(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise BadData(f"{folder} cannot be listed: {error.strerror}.") from error


def _exactly(side: int, image: Image.Image, path: Path) -> Image.Image:
    if image.size != (side, side):
        raise BadData(f"{path} must be {side} x {side} pixels; got {image.size[0]} x {image.size[1]}.")
    return image


def _centre(side: int, shorter: int, image: Image.Image, path: Path) -> Image.Image:
    width, height = image.size
    if shorter == min(width, height):
        resized = width, height
    elif width <= height:
        # The shorter side exactly, the longer one truncated, as torchvision does.
        resized = shorter, int(shorter * height / width)
    else:
        resized = int(shorter * width / height), shorter
    left, top = round((resized[0] - side) / 2), round((resized[1] - side) / 2)
    if resized == (width, height):
        return image.crop((left, top, left + side, top + side))
    if resized[0] * resized[1] <= _RESIZED_WHOLE or shorter < side:
        image = image.resize(resized, Image.Resampling.BILINEAR)
        return image.crop((left, top, left + side, top + side))
    # Resize only the part that is kept. Not done for every image: rounding its corners changes pixels by one level.
    x, y = width / resized[0], height / resized[1]
    box = (left * x, top * y, min((left + side) * x, width), min((top + side) * y, height))
    return image.resize((side, side), Image.Resampling.BILINEAR, box=box)
