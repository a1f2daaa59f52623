"""Open the data of a run: its domains, and the facts about them that a record keeps."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

from ctta._system.digests import sha256_of
from ctta._system.files import printable
from ctta._system.imports import is_own, user_code
from ctta.bench.content import digest_of, digest_of_domains
from ctta.corruptions import CORRUPTIONS, frost_source
from ctta.datasets import Dataset, Wanted
from ctta.datasets.arrays import Images
from ctta.datasets.catalog import OWN
from ctta.datasets.corrupted import Corrupted, corrupted
from ctta.datasets.domain import Domain, Labelled
from ctta.datasets.folder import read_images
from ctta.errors import BadData, MissingData, ParameterError

__all__ = ["Facts", "Opened", "open_data", "read_images"]

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
    if wanted.data is not None and not dataset.needs and is_own(dataset.clean or dataset.open):
        raise ParameterError(f"{dataset.name} is bundled and reads no files. Leave out --data {wanted.data}.")
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
