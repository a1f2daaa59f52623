"""Build what a run needs from its workload: the stream, the adapter, and the specification behind its address."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ctta._checks.arguments import check_arguments
from ctta._system.digests import sha256_of_code
from ctta._system.imports import message_of
from ctta.adapter import Adapter
from ctta.bench.content import digest_of
from ctta.bench.data import Facts, Opened, open_data, read_images
from ctta.bench.defaults import default_arguments, recipe
from ctta.bench.spec import RunSpec
from ctta.bench.workload import Workload
from ctta.classifier import Classifier
from ctta.datasets import Dataset, Wanted, get_dataset
from ctta.datasets.arrays import Images
from ctta.datasets.convert import check_classes
from ctta.datasets.corrupted import Pooled
from ctta.datasets.corrupted_twice import CorruptedTwice
from ctta.errors import CttaError, ImageShape, MissingData, ParameterError
from ctta.methods.eata import fisher_from_source
from ctta.nets.by_name import Loaded, from_table
from ctta.nets.class_subset import with_classes
from ctta.nets.models import MODELS
from ctta.protocol import StreamParts, get_protocol
from ctta.prototypes import prototypes_from_source
from ctta.registry import bare_target, get_method
from ctta.statistics.short_form import stored_form
from ctta.streams.stream import Stream


def spec_of(work: Workload, model: Loaded | Classifier, stream: Stream, data: Facts) -> RunSpec:
    """Describe a workload by its content.

    Args:
        work: The workload.
        model: Its model, or the classifier of a model in `ctta.nets.models.MODELS`.
        stream: The stream returned by `open_stream`.
        data: The facts of the data returned by `open_stream`.
    """
    procedure, inputs = work.procedure, work.inputs
    cls, protocol = get_method(procedure.method), get_protocol(procedure.protocol)
    one_severity = protocol.severities is None and protocol.shows_severity
    loaded = model if isinstance(model, Loaded) else from_table(MODELS[inputs.model], model)
    return RunSpec(
        method=_method_name(cls),
        settings={name: value for name, value in method_arguments(work).items() if name != "seed"},
        model=loaded.facts(),
        data=dict(data),
        protocol=protocol.to_json(times=procedure.times, order=procedure.order, options=procedure.options)
        | _path(stream),
        corruptions=_domains(stream),
        # Domains that are not corruptions have no severity, so --severity has no effect.
        severity=procedure.severity if one_severity and any(s.severity for s in stream.segments) else None,
        images=inputs.images,
        batch_size=work.batch_size,
        seed=procedure.seed,
        learn=procedure.learn,
        source_data=_source_digest(work, cls),
    )


def _method_name(cls: type[Adapter]) -> str:
    """Name a method for records. One from outside ctta gets a digest of its file, so that changed code changes it."""
    name, code = cls.__name__.lower(), sha256_of_code(cls)
    return name if code is None else f"{name}@{code[:12]}"


def build_adapter(work: Workload, model: Classifier) -> Adapter:
    """Build the method of a workload around its source model.

    Args:
        work: The workload.
        model: The source model.
    """
    cls = get_method(work.procedure.method)
    return cls(model, **method_arguments(work), **_from_source(work, cls, model))


def open_stream(work: Workload, *, keep: bool = False, source: Classifier | None = None) -> tuple[Stream, Facts]:
    """Open the stream of a workload, with the facts of its data.

    Args:
        work: The workload.
        keep: Whether to keep generated images in memory, for several concurrent runs.
        source: The source model, for protocols that choose images by its predictions.
    """
    opened = open_inputs(work, get_dataset(work.inputs.stream), keep=keep)
    return stream_of(work, opened, source), opened.facts


def open_inputs(work: Workload, dataset: Dataset, *, keep: bool = False) -> Opened:
    """Open the images of a workload.

    Args:
        work: The workload.
        dataset: Its dataset.
        keep: Whether to keep generated images in memory, for several concurrent runs.
    """
    inputs, protocol = work.inputs, get_protocol(work.procedure.protocol)
    wanted = Wanted(
        data=inputs.data,
        domains=inputs.corruptions,
        severities=protocol.severities_at(work.procedure.severity),
        seed=work.procedure.seed,
        image_list=inputs.image_list,
        side=inputs.side,
    )
    opened = open_data(dataset, wanted, keep=keep)
    if not protocol.needs_clean or inputs.clean is None:
        return opened
    images = read_images(inputs.clean, dataset.classes)
    return replace(opened, clean=images, facts=opened.facts | {"clean": digest_of(images, inputs.clean)})


def source_model(loaded: Loaded, opened: Opened) -> Classifier:
    """Return the source model of a run, restricted to the classes of the data if those are only some of the model's.

    Args:
        loaded: The model.
        opened: The images.
    """
    if opened.model_classes is None:
        return loaded.classifier
    return with_classes(loaded.classifier, opened.model_classes)


def stream_of(
    work: Workload,
    opened: Opened,
    source: Classifier | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> Stream:
    """Put the images of a workload into the order of its protocol.

    Args:
        work: The workload.
        opened: Its images, as returned by `open_inputs`.
        source: The source model, for protocols that choose images by its predictions.
        progress: Called with the name of the current part, the number of images done and the total, while the source
            model is measured.
    """
    procedure = work.procedure
    protocol = get_protocol(procedure.protocol)
    parts = StreamParts(
        domains=opened.domains,
        batch_size=work.batch_size,
        seed=procedure.seed,
        images=work.inputs.images,
        order=procedure.order,
        times=procedure.times,
        clean=opened.clean,
        source=source,
        options=protocol.with_options(procedure.options),
        progress=progress,
    )
    return protocol.stream(parts)


def _domains(stream: Stream) -> tuple[str, ...]:
    """The domains of a stream, including those that it mixes."""
    if isinstance(twice := stream.segments[0].images, CorruptedTwice):
        return twice.among
    pooled = (segment.images for segment in stream.segments if isinstance(segment.images, Pooled))
    return tuple(domain.name for pool in pooled for domain in pool.domains) or stream.domains


def _path(stream: Stream) -> dict[str, str]:
    """The digest of the measured path through the corruptions, which may be rounded differently on another machine."""
    twice = [s.images for s in stream.segments if isinstance(s.images, CorruptedTwice)]
    points = json.dumps([[*images.first, *images.second] for images in twice])
    return {"path": hashlib.sha256(points.encode()).hexdigest()} if twice else {}


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


def check_model(name: str, model: Classifier, dataset: Dataset, opened: Opened, stream: Stream) -> None:
    """Refuse a model that cannot take the images, or whose classes differ from those of the data.

    Args:
        name: Name of the model.
        model: The model.
        dataset: The dataset.
        opened: Its images.
        stream: The stream of these images.

    Raises:
        ImageShape: The model cannot take images of this size.
        LabelError: The labels count from 1.
        ParameterError: The model has different classes.
    """
    name, first = bare_target(name), stream.segments[0]
    # Two images, because some models drop the batch dimension of a single image.
    x = first.images.take(first.order[:2]).floats()
    logits = _logits(model, x if stream.device is None else x.to(stream.device), name, dataset.name)
    lowest = min(int(segment.images.y.min()) for segment in stream.segments)
    highest = max(int(segment.images.y.max()) for segment in stream.segments)
    if lowest == 1 and highest == logits.shape[1]:
        check_classes(torch.tensor([lowest, highest]), logits.shape[1])
    found = opened.classes or highest + 1
    if highest >= logits.shape[1] or (opened.classes is not None and found != logits.shape[1]):
        own = dataset.classes is None and opened.classes is not None
        advice = (
            "List all its classes in the order of its logits in classes.txt, beside the domains, or choose another "
            "model with --model."
            if own
            else "Choose a model of this data with --model: ctta ls models."
        )
        raise ParameterError(f"{name} has {logits.shape[1]} classes; {dataset.name} has {found}. {advice}")


def _logits(model: Classifier, x: Tensor, name: str, data: str) -> Tensor:
    """Predict without learning; a failure becomes an error about the size of the images."""
    try:
        with torch.no_grad():
            return model(x)
    except CttaError:
        raise
    except Exception as error:  # a model can fail anywhere inside
        reason = message_of(error).split("\n", maxsplit=1)[0].rstrip(".")
        size = " x ".join(map(str, x.shape[1:]))
        raise ImageShape(
            f"{name} cannot take the images of {data}, {size} (channels, height, width): {reason}. Resize the images "
            "(--side, for image files of your own), or choose another model with --model."
        ) from error


def _source_digest(work: Workload, cls: type[Adapter]) -> str | None:
    path = work.inputs.source_data
    if path is None:
        return None
    if not {"prototypes", "fisher"} & set(cls.arguments()):
        raise ParameterError(f"{cls.__name__} takes no source data. Leave out --source-data.")
    if not path.is_file():
        raise MissingData(f"There is no file {path.absolute()} for --source-data.")
    return digest_of(read_images(path), path)


def _from_source(work: Workload, cls: type[Adapter], model: Classifier) -> dict[str, Any]:
    """The arguments that the method takes from source data."""
    if work.inputs.source_data is None:
        return {}
    batches = _batches(read_images(work.inputs.source_data, model.num_classes), work)
    if "prototypes" in cls.arguments():
        return {"prototypes": prototypes_from_source(model, batches)}
    return {"fisher": fisher_from_source(model, batches)}


def _batches(images: Images, work: Workload) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(work.procedure.seed))
    for part in order.split(work.batch_size):  # type: ignore[no-untyped-call]
        if len(part) > 1:
            taken = images.take(part)
            yield taken.floats(), taken.y
