"""The datasets that can be downloaded, with the digests their publishers give."""

from __future__ import annotations

from dataclasses import dataclass

from ctta.datasets.imagenet_c import GROUPS as IMAGENET_C
from ctta.datasets.published import CIFAR10_C, CIFAR100_C
from ctta.errors import UnknownData


@dataclass(frozen=True)
class Archive:
    """A published tar archive.

    Args:
        name: Its name in ctta.
        url: Where it is published.
        file: Its file name.
        size: Its size in bytes, if published.
        md5: Its MD5 digest, if published.
        sha256: Its SHA-256 digest, if published.
        inside: The folders it unpacks to.
        digests: Names and MD5 digests of the files inside, if published.
    """

    name: str
    url: str
    file: str
    size: int | None
    md5: str | None = None
    sha256: str | None = None
    inside: tuple[str, ...] = ()
    digests: tuple[tuple[str, str], ...] = ()

    @property
    def by_hand(self) -> str:
        """Instructions to download it without ctta."""
        return f"download {self.url} to DIR/{self.file}, then: tar -xf {self.file} -C DIR"


def _npy(digests: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((f"{name}.npy", digest) for name, digest in digests.items())


def _imagenet_c(group: str, size: int, md5: str) -> Archive:
    url = f"https://zenodo.org/records/2235448/files/{group}.tar?download=1"
    return Archive(f"imagenet-c-{group}", url, f"{group}.tar", size, md5, inside=IMAGENET_C[group])


ARCHIVES: dict[str, Archive] = {
    archive.name: archive
    for archive in (
        Archive(
            "cifar10-c",
            "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar?download=1",
            "CIFAR-10-C.tar",
            2_918_471_680,
            "56bf5dcef84df0e2308c6dcbcbbd8499",
            "c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
            ("CIFAR-10-C",),
            _npy(CIFAR10_C),
        ),
        Archive(
            "cifar100-c",
            "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar?download=1",
            "CIFAR-100-C.tar",
            2_918_473_216,
            "11f0ed0f1191edbf9fa23466ae6021d3",
            inside=("CIFAR-100-C",),
            digests=_npy(CIFAR100_C),
        ),
        _imagenet_c("noise", 22_565_673_785, "e80562d7f6c3f8834afb1ecf27252745"),
        _imagenet_c("blur", 7_112_704_951, "2d8e81fdd8e07fef67b9334fa635e45c"),
        _imagenet_c("weather", 12_797_438_995, "33ffea4db4d93fe4a428c40a6ce0c25d"),
        _imagenet_c("digital", 7_757_510_705, "89157860d7b10d5797849337ca2e5c03"),
        _imagenet_c("extra", 15_789_490_144, "d492dfba5fc162d8ec2c3cd8ee672984"),
    )
}

#: Datasets of several archives. These hold the paper's fifteen corruptions.
GROUPS: dict[str, tuple[str, ...]] = {
    "imagenet-c": tuple(f"imagenet-c-{group}" for group in ("noise", "blur", "weather", "digital")),
}
#: Datasets that ctta does not download, because it knows no digest from their publisher: the source, and what to do.
BY_HAND: dict[str, tuple[str, str]] = {
    "imagenet-r": ("https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar", "unpack it to DIR/imagenet-r"),
    "imagenet-a": ("https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar", "unpack it to DIR/imagenet-a"),
    "imagenet-sketch": ("https://github.com/HaohanWang/ImageNet-Sketch", "unpack its images to DIR/sketch"),
    "imagenet-v2": (
        "https://github.com/modestyachts/ImageNetV2",
        "unpack one or more of its archives to DIR/imagenetv2-matched-frequency-format-val, "
        "DIR/imagenetv2-threshold0.7-format-val and DIR/imagenetv2-top-images-format-val",
    ),
    "imagenet-c-bar": (
        "https://github.com/facebookresearch/augmentation-corruption",
        "make it with the code there, or unpack its archives, to DIR/ImageNet-C-Bar",
    ),
    "cifar10.1": (
        "https://github.com/modestyachts/CIFAR-10.1",
        "put cifar10.1_v4_data.npy, cifar10.1_v4_labels.npy, cifar10.1_v6_data.npy and cifar10.1_v6_labels.npy of its "
        "folder datasets into DIR",
    ),
    "pacs": ("https://domaingeneralization.github.io", "put the folders of its four domains into DIR"),
}
#: Datasets of clean images, which are saved as npz files.
CIFAR = ("cifar10", "cifar100")


def names() -> list[str]:
    """Return the names of all datasets that can be downloaded, by ctta or by hand."""
    return [*CIFAR, *ARCHIVES, *GROUPS, *BY_HAND]


def archives(name: str) -> list[Archive]:
    """Return the archives of a dataset.

    Args:
        name: An archive, or a group of archives.

    Raises:
        UnknownData: If there is no such dataset.
    """
    if name in GROUPS:
        return [ARCHIVES[part] for part in GROUPS[name]]
    if name not in ARCHIVES:
        raise UnknownData(name, names())
    return [ARCHIVES[name]]
