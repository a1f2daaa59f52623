"""The method of a workload: its arguments, and the adapter that they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ctta._checks.arguments import check_arguments
from ctta.adapter import Adapter
from ctta.bench.data import read_images
from ctta.bench.defaults import default_arguments, recipe
from ctta.bench.new_record import is_plain
from ctta.bench.workload import Workload
from ctta.classifier import Classifier
from ctta.datasets import get_dataset
from ctta.datasets.arrays import Images
from ctta.errors import ParameterError
from ctta.registry import get_method
from ctta.statistics.short_form import stored_form


def method_arguments(work: Workload) -> dict[str, Any]:
    """Return the method's arguments: the recipe for the dataset, what the user set, and the seed if it takes one.

    Args:
        work: The workload.

    Raises:
        ParameterError: The user set an argument that the method does not have, or gave one an invalid value.
    """
    cls, given = get_method(work.procedure.method), work.procedure.settings
    unknown = set(given) - set(cls.arguments())
    if unknown:
        raise ParameterError(
            f"{cls.__name__} has no parameter {sorted(unknown)[0]!r}. It has: {', '.join(sorted(cls.arguments()))}."
        )
    if "seed" in given:
        raise ParameterError("The seed is given with --seed, not with --set.")
    check_arguments(cls, given)
    # One run must have one address: 1 and 1.0 are the same learning rate, and defaults need not be given.
    data = get_dataset(work.inputs.stream).name
    constructor, defaults = cls.arguments(), default_arguments(cls, data, work.batch_size)
    if "statistics" in defaults:
        defaults = {**defaults, "statistics": stored_form(defaults["statistics"])}
    settings = {k: float(v) if type(v) is int and isinstance(constructor[k], float) else v for k, v in given.items()}
    if "statistics" in settings:
        settings["statistics"] = stored_form(settings["statistics"])
    arguments = recipe(cls, data, work.batch_size) | {k: v for k, v in settings.items() if v != defaults[k]}
    return arguments | ({"seed": work.procedure.seed} if "seed" in cls.arguments() else {})


def build_adapter(work: Workload, model: Classifier) -> Adapter:
    """Build the method of a workload around its source model.

    Args:
        work: The workload.
        model: The source model.
    """
    cls = get_method(work.procedure.method)
    return cls(model, **method_arguments(work), **_from_source(work, cls, model))


def settings_of(work: Workload, model: Classifier) -> dict[str, object]:
    """The arguments with which a run of a workload computes today, as its record holds them.

    Arguments that come from source data are left out, and so are values that JSON does not have.

    Args:
        work: The workload.
        model: The source model.
    """
    cls = get_method(work.procedure.method)
    from_source = () if cls.from_source is None else cls.from_source.names
    settings = cls(model, **method_arguments(work)).settings
    return {name: value for name, value in settings.items() if is_plain(value) and name not in from_source}


def _from_source(work: Workload, cls: type[Adapter], model: Classifier) -> dict[str, Any]:
    """The arguments that the method takes from source data."""
    if work.inputs.source_data is None or cls.from_source is None:
        return {}
    images = read_images(work.inputs.source_data, model.num_classes)
    return dict[str, Any](cls.from_source.arguments(model, _batches(images, work)))


def _batches(images: Images, work: Workload) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(work.procedure.seed))
    for part in order.split(work.batch_size):  # type: ignore[no-untyped-call]
        if len(part) > 1:
            taken = images.take(part)
            yield taken.floats(), taken.y
