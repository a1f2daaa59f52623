"""Mutated files of images and labels: a named error, the same content, or other content with another digest."""

from __future__ import annotations

import io
import random
import resource
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ctta.bench.content import digest_of, digest_of_domains
from ctta.bench.data import read_images
from ctta.datasets.domain import Domain
from ctta.datasets.manifest import NAME, write_manifest
from ctta.errors import CttaError
from ctta.streams.datasets import domainnet126, image_folder, imagenet_c, own_c
from hostile.mutations import MUTATIONS
from hostile.tally import Tally

LONG = 2000
_MOST_GROWTH = 1 << 30
_SYNSETS = ("n01", "n02", "n03")

Content = tuple[Tensor, Tensor, str]


@dataclass(frozen=True)
class Specimen:
    """A sound file and how it is read: images, labels and digest."""

    name: str
    path: Path
    read: Callable[[], Content]


def run(count: int, seed: int) -> Tally:
    tally, draw = Tally(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        specimens = _specimens(Path(folder))
        sound = {specimen.name: specimen.read() for specimen in specimens}
        before = _peak()
        for number in range(count):
            specimen = specimens[number % len(specimens)]
            mutate = draw.choice(MUTATIONS)
            data = specimen.path.read_bytes()
            try:
                specimen.path.write_bytes(mutate(draw, data))
                said = _judged(specimen, sound[specimen.name])
            finally:
                specimen.path.write_bytes(data)
            if said.startswith("!"):
                tally.problem(f"{number}: {specimen.name} after {mutate.__name__}: {said[1:]}")
            else:
                tally.saw(said)
        growth = _peak() - before
    tally.counts["MB grown"] = growth >> 20
    if growth > _MOST_GROWTH:
        tally.problem(f"reading grew the process by {growth >> 20} MB")
    return tally


def _judged(specimen: Specimen, sound: Content) -> str:
    try:
        x, y, digest = specimen.read()
    except CttaError as error:
        return type(error).__name__
    except Exception as error:
        return f"!{type(error).__name__}: {error}"
    if x.dtype == sound[0].dtype and torch.equal(x, sound[0]) and torch.equal(y, sound[1]):
        return "same content"
    return "other content, other digest" if digest != sound[2] else "!other content under the same digest"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _specimens(root: Path) -> list[Specimen]:
    random_ = np.random.default_rng(0)
    x = random_.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    y = np.arange(12) % 10
    found = []

    def arrays(name: str, save: Callable[..., None], *, mapped: bool = False, **content: np.ndarray) -> None:
        path = root / f"{name}.npz"
        save(path, **content)

        def read() -> Content:
            with patch("ctta.datasets.array_files._MAP_FROM", 1 if mapped else 1 << 40):
                images = read_images(path, 10)
            return images.x, images.y, digest_of(images)

        found.append(Specimen(name, path, read))

    arrays("npz", np.savez, x=x, y=y)
    arrays("npz, compressed", np.savez_compressed, x=x, y=y)
    arrays("npz, mapped", np.savez, mapped=True, x=x, y=y)
    arrays("npz, big-endian floats", np.savez, x=(x / 255).astype(">f4"), y=y.astype(">i2"))

    made = root / "made"
    made.mkdir()
    np.save(made / "fog.npy", x)
    np.save(made / "labels.npy", y)
    write_manifest(made, {"severities": [2, 5]})
    for file in ("fog.npy", "labels.npy", NAME):
        found.append(Specimen(file, made / file, lambda: _content(own_c(made, ["fog"], [5]))))

    pictures = root / "pictures"
    for number, (suffix, options) in enumerate(_KINDS.items()):
        path = pictures / "day" / f"class{number % 3}" / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        Image.fromarray(x[number]).resize((40, 36)).save(buffer, **options)
        path.write_bytes(buffer.getvalue())
        found.append(Specimen(suffix, path, lambda: _content(image_folder(pictures, side=32))))

    listed = root / "listed"
    (listed / "clipart").mkdir(parents=True)
    for number in range(4):
        Image.fromarray(x[number]).resize((300, 260)).save(listed / "clipart" / f"{number}.png")
    names = listed / "clipart_list.txt"
    names.write_text("".join(f"clipart/{number}.png {number}\n" for number in range(4)))
    found.append(Specimen("list of domainnet-126", names, lambda: _content(domainnet126(listed, ["clipart"]))))

    imagenet = root / "imagenet"
    for number, synset in enumerate(_SYNSETS):
        (imagenet / "fog" / "5" / synset).mkdir(parents=True)
        Image.fromarray(x[number]).save(imagenet / "fog" / "5" / synset / f"{number}.png")
    ids = root / "ids.txt"
    ids.write_text("".join(f"{synset}/{number}.png\n" for number, synset in enumerate(_SYNSETS)))
    found.append(
        Specimen(
            "list of imagenet-c",
            ids,
            lambda: _content(imagenet_c(imagenet, ["fog"], images=ids, synsets=_SYNSETS, side=32)),
        )
    )
    return found


_KINDS: dict[str, dict[str, object]] = {
    ".png": {"format": "PNG"},
    ".jpg": {"format": "JPEG"},
    ".bmp": {"format": "BMP"},
    ".tif": {"format": "TIFF", "compression": "tiff_lzw"},
    ".tiff": {"format": "TIFF"},
    ".webp": {"format": "WEBP", "lossless": True},
    ".ppm": {"format": "PPM"},
}


def _content(domains: list[Domain]) -> Content:
    digest = digest_of_domains(domains)
    taken = [domain.images.take(slice(None)) for domain in domains]
    return torch.cat([part.x for part in taken]), torch.cat([part.y for part in taken]), digest


def main(count: int, seed: int) -> None:
    run(count, seed).report("data_files")


if __name__ == "__main__":
    main(LONG, seed=0)
