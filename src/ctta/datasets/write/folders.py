"""Corrupt a folder of images: `<corruption>/<severity>/<same subfolders>`."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image

from ctta.corruptions import corrupt
from ctta.datasets.pictures import as_it_is, centre, listed_below, read_picture
from ctta.datasets.write.corrupt_dataset import Recipe
from ctta.errors import BadData, MissingData

Format = Literal["jpeg", "png"]
QUALITY = 85  # JPEG quality of the published files
SMALLEST = 16
_CHUNK = 16


class FolderSource:
    """Corrupt the image files in a folder and its subfolders.

    Args:
        folder: The folder of the images.
        file_format: The format of the output files, "jpeg" (quality 85) or "png".
        side: The side in pixels to crop images to, after the shorter side is resized to 8/7 of it; None keeps their
            sizes.
    """

    def __init__(self, folder: Path, *, file_format: Format = "jpeg", side: int | None = None) -> None:
        if not folder.is_dir():
            raise MissingData(f"{folder.absolute()} is not there.")
        self.path = folder
        self.format = file_format
        self.cropped = side
        # As in the published ImageNet-C, which resizes the shorter side to 256 for a crop of 224.
        self.prepare = as_it_is if side is None else centre(side, resize=round(side * 8 / 7))
        self.paths = listed_below(folder)
        if not self.paths:
            raise MissingData(f"{folder.absolute()} holds no images.")
        self.names = [self._named(path) for path in self.paths]
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise BadData(f"Two images in {folder} would both become {twice}: rename one of them.")
        self.images = len(self.paths)
        self.side = side or min(self._read(self.paths[0]).size)

    def describe(self) -> dict[str, object]:
        """The input's name and digest, and the format of the output."""
        return {
            # The absolute path, because that of the working folder, ".", has no name.
            "input": {
                "name": self.path.absolute().name,
                "sha256": _digest(self.path, self.paths),
                "images": self.images,
            },
            "format": f"jpeg, quality {QUALITY}" if self.format == "jpeg" else "png",
            "cropped_to": self.cropped,
        }

    def parts(self, recipe: Recipe) -> list[str]:
        """Return the folders to make, one for each corruption and severity.

        Args:
            recipe: The corruptions, severities, seed and scale.
        """
        return [f"{name}/{severity}" for name in recipe.corruptions for severity in recipe.severities]

    def per_part(self, recipe: Recipe) -> int:
        """Return the number of images in a folder: every image once.

        Args:
            recipe: Not used.
        """
        return self.images

    def make(self, part: str, out: Path, recipe: Recipe, advance: Callable[[int], None]) -> None:
        """Write one corruption at one severity to a temporary folder, renamed when it is complete.

        Args:
            part: The folder to write, `<corruption>/<severity>`.
            out: The output folder.
            recipe: The corruptions, severities, seed and scale.
            advance: Called with the number of images just made, after each batch of them.
        """
        name, _, severity = part.partition("/")
        temporary = out / f".{name}.{severity}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        for first, pictures in self._batches():
            x = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])).permute(0, 3, 1, 2)
            found = corrupt(x, name, severity=int(severity), seed=recipe.seed, scale=recipe.scale)
            for target, pixels in zip(self.names[first:], found.permute(0, 2, 3, 1).numpy(), strict=False):
                self._save(Image.fromarray(pixels), temporary / target)
            advance(len(pictures))
        (out / name).mkdir(exist_ok=True)
        shutil.rmtree(out / part, ignore_errors=True)  # left from an interrupted run: the manifest does not list it
        temporary.rename(out / part)

    def finish(self, out: Path, recipe: Recipe) -> None:
        """Remove unfinished folders of an earlier run.

        Args:
            out: The output folder.
            recipe: Not used.
        """
        for left in out.glob(".*.tmp"):
            shutil.rmtree(left, ignore_errors=True)

    def digest(self, part: str, out: Path) -> str:
        """Return the SHA-256 of the names and contents of all files in a part.

        Args:
            part: The folder, one of `parts`.
            out: The output folder.

        Raises:
            BadData: If a file is missing or cannot be read.
        """
        return _digest(out / part, [out / part / name for name in self.names])

    def _batches(self) -> Iterator[tuple[int, list[Image.Image]]]:
        """Yield runs of consecutive images of one size, each with the position of its first image."""
        batch: list[Image.Image] = []
        for position, path in enumerate(self.paths):
            picture = self._read(path)
            if batch and (picture.size != batch[0].size or len(batch) == _CHUNK):
                yield position - len(batch), batch
                batch = []
            batch.append(picture)
        yield len(self.paths) - len(batch), batch

    def _read(self, path: Path) -> Image.Image:
        picture = self.prepare(read_picture(path), path)
        if min(picture.size) < SMALLEST:
            raise BadData(f"{path} is {picture.width} x {picture.height} pixels; corruptions need {SMALLEST} or more.")
        return picture

    def _named(self, path: Path) -> Path:
        name = path.relative_to(self.path)
        suffixes = {"jpeg": (".jpeg", ".jpg"), "png": (".png",)}[self.format]
        return name if name.suffix.lower() in suffixes else name.with_suffix(suffixes[-1])

    def _save(self, image: Image.Image, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.format == "jpeg":
            image.save(target, format="JPEG", quality=QUALITY, optimize=True)
        else:
            image.save(target, format="PNG")


def _digest(folder: Path, paths: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BadData(f"{path} cannot be read: {error.strerror}.") from error
        whole.update(os.fsencode(path.relative_to(folder).as_posix()) + b"\0" + hashlib.sha256(content).digest())
    return whole.hexdigest()
