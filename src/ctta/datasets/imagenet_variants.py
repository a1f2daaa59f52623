"""ImageNet-R, -A, -Sketch and -V2 in their published folders, resized to 256 pixels and cropped to 224."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ctta.datasets.domain import Domain
from ctta.datasets.folder import choose_domains
from ctta.datasets.imagenet_synsets import pictures_of, synset_folders, synsets
from ctta.datasets.pictures import Pictures, Prepare, centre, folders
from ctta.errors import BadData

CLASSES = 1000
_PARTS = Path(__file__).parents[1] / "data" / "imagenet_parts.json"
#: The samples of ImageNet-V2, by how they were chosen.
V2 = ("matched-frequency", "threshold0.7", "top-images")


def imagenet_r(folder: str | Path) -> list[Domain]:
    """Open ImageNet-R (renditions): `<synset>/*.jpg` for 200 of the classes.

    Labels are 0 to 199; ``Domain.model_classes`` maps them to the model's 1,000 classes. All of the published classes
    must be present, and no others.

    Args:
        folder: The folder of the synset folders, or the one that holds `imagenet-r`.
    """
    return _part(folder, "imagenet-r")


def imagenet_a(folder: str | Path) -> list[Domain]:
    """Open ImageNet-A (natural adversarial examples): `<synset>/*.jpg` for 200 classes, like `imagenet_r`.

    Args:
        folder: The folder of the synset folders, or the one that holds `imagenet-a`.
    """
    return _part(folder, "imagenet-a")


def imagenet_sketch(folder: str | Path) -> list[Domain]:
    """Open ImageNet-Sketch: `<synset>/*.JPEG` for all 1,000 classes.

    Args:
        folder: The folder of the synset folders, or the one that holds `sketch`.
    """
    place = _inside(Path(folder), "sketch")
    hint = "ImageNet-Sketch is described at github.com/HaohanWang/ImageNet-Sketch."
    paths, y = pictures_of(synset_folders(place, CLASSES, hint))
    return [Domain("imagenet-sketch", 0, Pictures(paths, y, _prepare()), files=tuple(paths), classes=CLASSES)]


def imagenet_v2(folder: str | Path, samples: str | Sequence[str] | None = None) -> list[Domain]:
    """Open ImageNet-V2: `imagenetv2-<sample>-format-val/<class>/*.jpeg`, with the class as a number from 0 to 999.

    Args:
        folder: The folder that holds the folders of the samples.
        samples: The samples to open, in this order, among matched-frequency, threshold0.7 and top-images; by default
            those that are there.
    """
    root = Path(folder)
    hint = "It must hold imagenetv2-matched-frequency-format-val or its like, from github.com/modestyachts/ImageNetV2."
    there = [name for name in V2 if (root / f"imagenetv2-{name}-format-val").is_dir()]
    wanted = choose_domains(root, there, samples, what="samples of ImageNet-V2", hint=hint)
    return [_v2_sample(root / f"imagenetv2-{name}-format-val", name) for name in wanted]


def _v2_sample(place: Path, name: str) -> Domain:
    # Sort by number: in alphabetical order, 10 would be the third class.
    numbers = {path.name for path in folders(place)}
    if numbers != {str(number) for number in range(CLASSES)}:
        raise BadData(f"{place} must hold the folders 0 to {CLASSES - 1}, one per class; got {len(numbers)} folders.")
    paths, y = pictures_of([place / str(number) for number in range(CLASSES)])
    return Domain(name, 0, Pictures(paths, y, _prepare()), files=tuple(paths), classes=CLASSES)


def _part(folder: str | Path, name: str) -> list[Domain]:
    place = _inside(Path(folder), name)
    hint = f"It is published at people.eecs.berkeley.edu/~hendrycks/{name}.tar; unpack it there."
    classes = part_classes()[name]
    places = synset_folders(place, len(classes), hint)
    number = {synset: index for index, synset in enumerate(synsets())}
    found = tuple(number[path.name] for path in places)
    if found != classes:
        other = next((f": they are those of {name}" for name, own in part_classes().items() if own == found), "")
        raise BadData(f"{place} has {len(found)} classes of ImageNet, but not those of {name}{other}.")
    paths, y = pictures_of(places)
    return [
        Domain(
            name,
            0,
            Pictures(paths, y, _prepare()),
            files=tuple(paths),
            classes=len(classes),
            model_classes=classes,
        )
    ]


@lru_cache(maxsize=1)
def part_classes() -> dict[str, tuple[int, ...]]:
    """Return the 200 classes of ImageNet-R and of ImageNet-A, by their number among the 1,000."""
    return {name: tuple(classes) for name, classes in json.loads(_PARTS.read_bytes()).items()}


def _inside(root: Path, name: str) -> Path:
    """The folder that an archive unpacks to, if the one above it is given."""
    return root / name if (root / name).is_dir() else root


def _prepare() -> Prepare:
    return centre(224, resize=256)
