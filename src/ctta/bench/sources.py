"""Data by the names people use: the domains behind "cifar10-c", and the facts a record keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ctta.bench.content import digest_of, digest_of_domains
from ctta.digests import sha256_of
from ctta.errors import MissingData, ParameterError, UnknownStream
from ctta.streams.arrays import Images
from ctta.streams.corruptions import CORRUPTIONS, frost_source
from ctta.streams.corruptions.constants import Scale
from ctta.streams.datasets import cifar10_c, cifar100_c, domainnet126, image_folder, imagenet_c
from ctta.streams.datasets.checks import images_of, labels_of, refuse_out_of_range
from ctta.streams.datasets.files import read_npz
from ctta.streams.digits import digits
from ctta.streams.domain import Domain
from ctta.streams.generated import corrupted

PUBLISHED: dict[str, Callable[..., list[Domain]]] = {
    "cifar10-c": cifar10_c,
    "cifar100-c": cifar100_c,
    "imagenet-c": imagenet_c,
}
CLASSES = {"digits": 10, "cifar10-c": 10, "cifar100-c": 100, "imagenet-c": 1000}
STREAMS = ("digits", *PUBLISHED, "domainnet-126", "folder")


def open_domains(
    name: str,
    data: Path | None,
    *,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = (5,),
    seed: int = 0,
    keep: bool = False,
    image_list: Path | None = None,
) -> tuple[list[Domain], dict[str, Any]]:
    """The domains of a stream by name, and what tells its data from others: origin and digest.

    ``data`` is the folder of the published files, or an npz with clean images ``x`` and classes ``y``, which are
    corrupted on the way. "digits" needs none. ``image_list`` names the images of ImageNet-C's folders to take.
    """
    if name not in STREAMS:
        raise UnknownStream(name, STREAMS)
    if image_list is not None and (name != "imagenet-c" or data is None or not data.is_dir()):
        raise ParameterError(
            "An image list chooses among the files of imagenet-c: --data must be their folder. "
            f"Got {name} with --data {data}. Leave out --image-list."
        )
    if name == "digits":
        clean = digits().stream
        return _generated(name, clean, digest_of(clean), corruptions, severities, seed, "imagenet", keep)
    if data is None:
        raise MissingData(f"{name} needs --data: its folder, or an npz with clean images x and classes y.")
    if name in PUBLISHED and data.is_file():
        clean = read_images(data, CLASSES[name])
        return _generated(name, clean, digest_of(clean, data), corruptions, severities, seed, None, keep)
    if image_list is not None:
        found = imagenet_c(data, corruptions, severities, images=image_list)
    elif name in PUBLISHED:
        found = PUBLISHED[name](data, corruptions, severities)
    else:
        found = domainnet126(data) if name == "domainnet-126" else image_folder(data)
    # Records without "hashed" have a digest of names and sizes, or of a sample of the images.
    facts = {
        "name": name,
        "origin": found[0].origin,
        "digest": digest_of_domains(found),
        "hashed": "every image",
    }
    return found, facts if image_list is None else facts | {"image_list": sha256_of(image_list)}


def read_images(path: Path, classes: int | None = None) -> Images:
    """Labelled images of an npz."""
    x, y = read_npz(path, hint="Save your images with np.savez(path, x=images, y=labels).")
    images = images_of(x, path)
    refuse_out_of_range(images, path)
    return Images(images, labels_of(y, path, count=len(x), classes=classes))


def severities_of(protocol: str, severity: int) -> tuple[int, ...]:
    """The severities a protocol shows."""
    if not 1 <= severity <= 5:
        raise ParameterError(f"The severity must be in 1..5. Got {severity} instead.")
    return (1, 2, 3, 4, 5) if protocol == "gradual" else (severity,)


def _generated(
    name: str,
    clean: Images,
    digest: str,
    corruptions: Sequence[str],
    severities: Sequence[int],
    seed: int,
    scale: Scale | None,
    keep: bool,
) -> tuple[list[Domain], dict[str, Any]]:
    domains = corrupted(clean, corruptions, severities, seed=seed, scale=scale, keep=keep)
    facts = {"name": name, "origin": "generated", "digest": digest, "constants": scale or "by image size"}
    return domains, facts | {"frost": frost_source(), "corruption_seed": seed}
