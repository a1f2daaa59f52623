"""Open the data of a run: its domains, and the facts about them that a record keeps."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ctta._system.digests import sha256_of
from ctta._system.files import printable
from ctta._system.imports import is_own, user_code
from ctta.bench.content import digest_of, digest_of_domains
from ctta.corruptions import CORRUPTIONS, frost_source
from ctta.datasets import Dataset, Wanted, get_dataset
from ctta.datasets.arrays import Images
from ctta.datasets.catalog import OWN
from ctta.datasets.corrupted import Corrupted, corrupted
from ctta.datasets.domain import Domain, Labelled
from ctta.datasets.folder import read_images
from ctta.errors import BadData, MissingData, ParameterError

__all__ = ["Facts", "Opened", "open_data", "open_domains", "read_images"]

#: Facts that identify the data of a run, as stored in its specification.
Facts = dict[str, str | int]


@dataclass(frozen=True)
class Opened:
    """The data of a run.

    Args:
        domains: The domains, in order.
        facts: Name, origin and digest, as stored in the specification of the run.
        clean: The images before corruption, if they are available.
        classes: The number of classes; None if it can only be inferred from the labels.
        class_names: The names of the classes in the order of the labels, if class folders define them.
        title: The name of the user's own folder or file; None for a dataset that has a name.
        model_classes: The model's classes that the labels index, if the data has only some of them.
    """

    domains: tuple[Domain, ...]
    facts: Facts
    clean: Labelled | None
    classes: int | None
    model_classes: tuple[int, ...] | None = None
    class_names: tuple[str, ...] = ()
    title: str | None = None


def open_data(dataset: Dataset, wanted: Wanted, *, keep: bool = False) -> Opened:
    """Open the part of a dataset that a run needs.

    Args:
        dataset: The dataset.
        wanted: The part to open.
        keep: Whether to keep generated images in memory, for several concurrent runs.

    Raises:
        ParameterError: If the dataset cannot provide it.
        MissingData, BadData: If files are missing or damaged.
    """
    _check(dataset, wanted)
    images = _clean(dataset, wanted)
    if images is not None:
        return _generated(dataset, images, wanted, keep)
    if dataset.open is None:
        raise MissingData(f"The dataset {dataset.name} has no clean images for this run, and no stored ones.")
    domains = _domains(dataset, wanted)
    first = domains[0].images
    # Records without "hashed" have a digest of names and sizes, or of a sample of the images.
    facts: Facts = {
        "name": dataset.name,
        "origin": domains[0].origin,
        "digest": digest_of_domains(domains),
        "hashed": "every image",
    }
    if wanted.image_list is not None:
        facts["image_list"] = sha256_of(wanted.image_list)
    if wanted.side is not None:
        facts["side"] = wanted.side
    part = domains[0].model_classes
    if part is not None:
        facts["model_classes"] = hashlib.sha256(",".join(map(str, part)).encode()).hexdigest()
    return Opened(
        domains=domains,
        facts=facts,
        clean=first.images if isinstance(first, Corrupted) else None,
        classes=(dataset.classes if part is None else len(part)) or domains[0].classes,
        model_classes=part,
        class_names=tuple(map(printable, domains[0].class_names)),
        title=printable(wanted.path.absolute().name) if dataset is OWN else None,
    )


def open_domains(
    name: str,
    data: Path | None,
    *,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = (5,),
    seed: int = 0,
    keep: bool = False,
    image_list: Path | None = None,
) -> tuple[list[Domain], Facts]:
    """Open the domains of a dataset by name, and return them with the facts that identify its data.

    Args:
        name: A name for `ctta.datasets.get_dataset`.
        data: The folder of the published files, or an npz with clean images ``x`` and classes ``y``, which are
            corrupted on the fly.
        corruptions: The corruptions or domains, in order; None means the dataset's default.
        severities: The severities of each.
        seed: Seed of generated corruptions.
        keep: Whether to keep generated images in memory.
        image_list: A text file that lists the images of ImageNet-C to use.
    """
    wanted = Wanted(
        data=data,
        domains=None if corruptions is None else tuple(corruptions),
        severities=tuple(severities),
        seed=seed,
        image_list=image_list,
    )
    opened = open_data(get_dataset(name), wanted, keep=keep)
    return list(opened.domains), opened.facts


def _check(dataset: Dataset, wanted: Wanted) -> None:
    if wanted.image_list is not None and not (
        dataset.takes_image_list and wanted.data is not None and wanted.data.is_dir()
    ):
        raise ParameterError(
            "An image list chooses among the files of imagenet-c: --data must be their folder. "
            f"Got {dataset.name} with --data {wanted.data}. Leave out --image-list."
        )
    if wanted.side is not None and not dataset.takes_side:
        raise ParameterError(f"The images of {dataset.name} have one size already. Leave out --side.")
    if dataset.needs and wanted.data is None:
        raise MissingData(f"{dataset.name} needs --data: {dataset.needs}")
    repeated = sorted(name for name, count in Counter(wanted.domains or ()).items() if count > 1)
    if repeated:
        raise ParameterError(
            f"Every domain is named once; {', '.join(repeated)} is repeated. The protocol recurring shows domains "
            "several times."
        )


def _clean(dataset: Dataset, wanted: Wanted) -> Images | None:
    if dataset.clean is None or is_own(dataset.clean):
        return None if dataset.clean is None else dataset.clean(wanted)
    with user_code(f"Reading the clean images of the dataset {dataset.name}"):
        images = dataset.clean(wanted)
    if images is not None and not isinstance(images, Images):
        raise BadData(
            f"The clean images of the dataset {dataset.name} must be ctta.datasets.arrays.Images, or None. Got "
            f"{type(images).__name__}."
        )
    return images


def _domains(dataset: Dataset, wanted: Wanted) -> tuple[Domain, ...]:
    assert dataset.open is not None
    if is_own(dataset.open):
        return tuple(dataset.open(wanted))
    with user_code(f"Opening the dataset {dataset.name}"):
        domains = tuple(dataset.open(wanted))
    if not domains or not all(isinstance(domain, Domain) for domain in domains):
        raise BadData(f"The dataset {dataset.name} must open a list of at least one ctta.streams.Domain.")
    return domains


def _generated(dataset: Dataset, images: Images, wanted: Wanted, keep: bool) -> Opened:
    file = wanted.data if wanted.data is not None and wanted.data.is_file() and dataset.needs else None
    scale = dataset.constants
    domains = corrupted(
        images,
        CORRUPTIONS if wanted.domains is None else wanted.domains,
        wanted.severities,
        seed=wanted.seed,
        scale=scale,
        keep=keep,
    )
    facts: Facts = {
        "name": dataset.name,
        "origin": "generated",
        "digest": digest_of(images, file),
        "constants": scale or "by image size",
        "frost": frost_source(),
        "corruption_seed": wanted.seed,
    }
    return Opened(tuple(domains), facts, images, dataset.classes)
