"""The datasets that have a name: one table.

A built-in dataset is one entry here. Others come from `register`, from installed packages with entry points of the
group ``ctta.datasets``, or from the user's own code as ``package.module:name`` or ``file.py:name``. Nothing here
imports torch before a dataset is opened.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ctta._system.files import printable
from ctta.datasets.dataset import Dataset, Wanted
from ctta.errors import MissingData, ParameterError, UnknownStream
from ctta.registry import NamedRegistry, is_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctta.datasets.arrays import Images
    from ctta.datasets.domain import Domain

_FILES = "its folder, or an npz with clean images x and classes y."


def _digits(wanted: Wanted) -> Images:
    from ctta.datasets.digits import digits  # noqa: PLC0415

    return digits().stream


def _clean_npz(classes: int) -> Callable[[Wanted], Images | None]:
    def read(wanted: Wanted) -> Images | None:
        from ctta.datasets.folder import read_images  # noqa: PLC0415

        return read_images(wanted.path, classes) if wanted.path.is_file() else None

    return read


def _cifar10_c(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.cifar_c import cifar10_c  # noqa: PLC0415

    return cifar10_c(wanted.path, wanted.corruptions, wanted.severities)


def _cifar100_c(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.cifar_c import cifar100_c  # noqa: PLC0415

    return cifar100_c(wanted.path, wanted.corruptions, wanted.severities)


def _imagenet_c(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.imagenet_c import imagenet_c  # noqa: PLC0415

    return imagenet_c(wanted.path, wanted.corruptions, wanted.severities, images=wanted.image_list)


def _domainnet(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.domainnet import TARGETS, domainnet126  # noqa: PLC0415

    return domainnet126(wanted.path, TARGETS if wanted.domains is None else wanted.domains)


def _imagenet_c_bar(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.imagenet_c_bar import imagenet_c_bar  # noqa: PLC0415

    return imagenet_c_bar(wanted.path, wanted.domains, wanted.severities)


def _imagenet_r(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.imagenet_variants import imagenet_r  # noqa: PLC0415

    return _only(wanted, imagenet_r(wanted.path))


def _imagenet_a(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.imagenet_variants import imagenet_a  # noqa: PLC0415

    return _only(wanted, imagenet_a(wanted.path))


def _imagenet_sketch(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.imagenet_variants import imagenet_sketch  # noqa: PLC0415

    return _only(wanted, imagenet_sketch(wanted.path))


def _imagenet_v2(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.imagenet_variants import imagenet_v2  # noqa: PLC0415

    return imagenet_v2(wanted.path, wanted.domains)


def _cifar10_1(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.cifar10_1 import cifar10_1  # noqa: PLC0415

    return cifar10_1(wanted.path, ("v6",) if wanted.domains is None else wanted.domains)


def _pacs(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.pacs import SIDE, TARGETS, pacs  # noqa: PLC0415

    domains = TARGETS if wanted.domains is None else wanted.domains
    return pacs(wanted.path, domains, side=wanted.side or SIDE)


def _only(wanted: Wanted, domains: Sequence[Domain]) -> Sequence[Domain]:
    """Refuse unknown domain names, for a dataset whose domains cannot be chosen."""
    names = tuple(domain.name for domain in domains)
    if wanted.domains not in (None, names):
        raise ParameterError(f"The only domain of this dataset is {names[0]}. Leave out --corruptions.")
    return domains


def _own(wanted: Wanted) -> Sequence[Domain]:
    from ctta.datasets.by_layout import open_by_layout  # noqa: PLC0415

    return open_by_layout(wanted.path, wanted.domains, wanted.severities, side=wanted.side)


#: The dataset of a path: the user's own images.
OWN = Dataset(
    "folder",
    _own,
    needs="a folder that ctta corrupt made, a folder domain/class/*, or an npz per domain.",
    takes_side=True,
    summary="your own images: what ctta corrupt wrote, domain/class/*, or an npz per domain; a path will do",
)

_BUILT_IN = (
    Dataset(
        "digits",
        clean=_digits,
        classes=10,
        batch_size=50,
        recipe="cifar10-c",  # also 32-pixel images in ten classes
        default_model="digits_resnet8",
        # The weaker constants of CIFAR-10-C leave too little to adapt to: see ctta.bench.demo.
        constants="imagenet",
        mirror=False,
        summary="handwritten digits under corruptions, bundled with scikit-learn",
    ),
    Dataset(
        "cifar10-c",
        _cifar10_c,
        _clean_npz(10),
        classes=10,
        recipe="cifar10-c",
        default_model="cifar10_resnet20_ctta",
        needs=_FILES,
        summary="CIFAR-10-C, or clean images that are corrupted on the fly",
    ),
    Dataset(
        "cifar100-c",
        _cifar100_c,
        _clean_npz(100),
        classes=100,
        recipe="cifar100-c",
        needs=_FILES,
        summary="CIFAR-100-C, or clean images that are corrupted on the fly",
    ),
    Dataset(
        "imagenet-c",
        _imagenet_c,
        _clean_npz(1000),
        classes=1000,
        batch_size=64,
        recipe="imagenet-c",
        needs=_FILES,
        takes_image_list=True,
        summary="ImageNet-C, or clean images that are corrupted on the fly",
    ),
    Dataset(
        "domainnet-126",
        _domainnet,
        classes=126,
        batch_size=128,
        recipe="domainnet-126",
        needs="the folder of its images and lists.",
        summary="clipart, painting and sketch of DomainNet-126",
    ),
    Dataset(
        "imagenet-c-bar",
        _imagenet_c_bar,
        classes=1000,
        batch_size=64,
        recipe="imagenet-c",
        needs="the folder of its corruptions.",
        summary="ImageNet-C-bar, ten other corruptions",
    ),
    Dataset(
        "imagenet-r",
        _imagenet_r,
        classes=1000,
        batch_size=64,
        recipe="imagenet-c",
        needs="the folder of its 200 synset folders.",
        summary="ImageNet-R, renditions of 200 classes; the model keeps the logits of those",
    ),
    Dataset(
        "imagenet-a",
        _imagenet_a,
        classes=1000,
        batch_size=64,
        recipe="imagenet-c",
        needs="the folder of its 200 synset folders.",
        summary="ImageNet-A, natural adversarial examples of 200 classes; the model keeps the logits of those",
    ),
    Dataset(
        "imagenet-sketch",
        _imagenet_sketch,
        classes=1000,
        batch_size=64,
        recipe="imagenet-c",
        needs="the folder of its 1,000 synset folders.",
        summary="ImageNet-Sketch, drawings of all classes",
    ),
    Dataset(
        "imagenet-v2",
        _imagenet_v2,
        classes=1000,
        batch_size=64,
        recipe="imagenet-c",
        needs="the folder with imagenetv2-matched-frequency-format-val and its like.",
        summary="ImageNet-V2, new test images in up to three samples",
    ),
    Dataset(
        "cifar10.1",
        _cifar10_1,
        classes=10,
        recipe="cifar10-c",
        default_model="cifar10_resnet20_ctta",
        needs="the folder of cifar10.1_v6_data.npy and its labels.",
        summary="CIFAR-10.1, new test images of CIFAR-10: v6, or v4 with --corruptions v4",
    ),
    Dataset(
        "pacs",
        _pacs,
        classes=7,
        batch_size=64,
        needs="the folder of its domains.",
        takes_side=True,
        summary="PACS: art_painting, cartoon and sketch for a model of photo",
    ),
    OWN,
)


#: Datasets by name.
DATASETS = NamedRegistry(UnknownStream, Dataset, "ctta.datasets.Dataset", _BUILT_IN)


def register(dataset: Dataset) -> Dataset:
    """Make a dataset known under its name, in this process.

    Args:
        dataset: The dataset.

    Raises:
        ParameterError: If it is not a `Dataset`, or has the name of a built-in one.
    """
    return DATASETS.register(dataset, getattr(dataset, "open", None) or getattr(dataset, "clean", None))


def get_dataset(name: str) -> Dataset:
    """Return the dataset of this name.

    Args:
        name: A name that `ctta ls streams` gives, or a `Dataset` as ``package.module:name`` or ``file.py:name``.

    Raises:
        UnknownStream: If there is no such dataset; the message suggests the nearest known name.
        PluginError: If it belongs to a plug-in that fails to import.
        UserCodeError: If the user's own code does not exist or fails to import.
    """
    return DATASETS.get(name)


def locate(stream: str, data: Path | None) -> tuple[str, Path | None]:
    """Return the dataset and the files that a user means by a stream, without importing anything.

    Args:
        stream: The name of a dataset, or the path of a folder or npz with the user's own images.
        data: The files of --data, if given.

    Returns:
        A name for `get_dataset`, and the files.

    Raises:
        UnknownStream: If it is neither a name nor a path.
        MissingData: If nothing exists at the path.
        ParameterError: If it is a path, and ``data`` is given as well.
    """
    path = Path(stream)
    there = _exists(path)
    images = (there and path.is_dir()) or path.suffix == ".npz"
    if DATASETS.find(stream) is not None or (is_target(stream) and not images):
        return stream, data
    if not images and not there and os.sep not in stream:
        raise UnknownStream(stream, DATASETS.names(), no_path(path))
    if not there:
        raise MissingData(f"{no_path(path)} Names of streams: ctta ls streams.")
    if data is not None:
        raise ParameterError(f"{stream} is the path of the images already. Leave out --data.")
    return OWN.name, path


def no_path(path: Path) -> str:
    """Say that nothing exists at a path, and suggest a folder or npz of similar name next to it.

    Args:
        path: The path.
    """
    try:
        beside = [other.name for other in path.parent.iterdir() if other.suffix == ".npz" or other.is_dir()]
    except OSError:
        beside = []
    close = difflib.get_close_matches(path.name, beside, n=1)
    return f"There is no file or folder {path.absolute()}." + (
        f" Did you mean the path {printable(path.with_name(close[0]))}?" if close else ""
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long, or a folder above it may not be read
        return False
