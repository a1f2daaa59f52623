"""From what a user asks for to runs: jobs are plain values, so that any process can take one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctta._checks.arguments import check_arguments
from ctta._system.device import choose_device
from ctta._system.digests import sha256_of_code
from ctta.adapter import Adapter
from ctta.bench.content import digest_of
from ctta.bench.defaults import default_arguments, recipe
from ctta.bench.folder import RunFolder
from ctta.bench.progress import RunStarted
from ctta.bench.record import Record
from ctta.bench.run import Run
from ctta.bench.sources import Facts, Opened, open_data, read_images
from ctta.bench.spec import RunSpec
from ctta.bench.tensorboard import Events, require_tensorboard
from ctta.classifier import Classifier
from ctta.datasets import Dataset, Wanted, get_dataset
from ctta.datasets.arrays import Images
from ctta.datasets.corrupted import Pooled
from ctta.errors import CttaError, ImageShape, MissingData, ParameterError
from ctta.methods.eata import fisher_from_source
from ctta.nets.by_name import Loaded, from_table, load_model
from ctta.nets.models import MODELS
from ctta.protocol import Order, StreamParts, get_protocol
from ctta.prototypes import prototypes_from_source
from ctta.registry import bare_target, get_method
from ctta.statistics import as_statistics, short_form
from ctta.streams.stream import Stream


@dataclass(frozen=True)
class Job:
    """One run as asked for: names and paths.

    ``method``, ``stream``, ``model`` and ``protocol`` may be the user's own code, as ``package.module:name`` or
    ``file.py:name``.

    Args:
        method: Name of the method.
        stream: Name of the dataset.
        model: Name of the source model.
        weights: Its weights file; None if it needs none.
        data: The files of the dataset.
        image_list: A text file that lists the images to use.
        clean: An npz with the clean images, for protocols that show them.
        source_data: An npz with labelled source images.
        settings: Arguments of the method that the user set.
        protocol: Name of the protocol.
        times: Rounds, for protocols that repeat.
        corruptions: The corruptions or domains, in order; None means the dataset's default.
        severity: Severity of the corruptions.
        images: Images per domain; None means all.
        batch_size: Images per batch.
        seed: Seed of the run.
        learn: Whether to learn from the stream, or only predict.
        keep: Whether to keep the adapted model.
        command: Command line for the record.
        tensorboard: Folder for TensorBoard events.
        device: Where to compute; None means the best device of the machine that the job runs on.
        order: Order of the images of a domain.
        side: The side in pixels to resize and crop image files to; None leaves them as they are.
    """

    method: str
    stream: str
    model: str
    weights: Path | None = None
    data: Path | None = None
    image_list: Path | None = None
    clean: Path | None = None
    source_data: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    protocol: str = "continual"
    times: int = 1
    corruptions: tuple[str, ...] | None = None
    severity: int = 5
    images: int | None = None
    batch_size: int = 200
    seed: int = 0
    learn: bool = True
    keep: bool = False
    command: str = ""
    tensorboard: Path | None = None
    device: str | None = None
    order: Order = "shuffled"
    side: int | None = None

    def with_seed(self, seed: int) -> Job:
        """Return the same job with another seed.

        Args:
            seed: The new seed.
        """
        return replace(self, seed=seed)

    def execute(self, folder: Path, *, save_every: float = 30.0, progress: RunStarted | None = None) -> Record:
        """Run the job; see `execute`.

        Args:
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints.
            progress: Called when steps are about to be computed; None reports nothing.
        """
        return execute(self, folder, save_every=save_every, progress=progress)


def execute(job: Job, folder: Path, *, save_every: float = 30.0, progress: RunStarted | None = None) -> Record:
    """Run a job, or find its record.

    Args:
        job: The job.
        folder: Folder of the runs.
        save_every: Seconds between two checkpoints.
        progress: Called when steps are about to be computed.
    """
    if job.tensorboard is not None:
        require_tensorboard()
    _arguments(job)  # a wrong setting is refused before anything large is read
    device = choose_device(job.device)
    dataset = get_dataset(job.stream)
    loaded = load_model(job.model, job.weights, classes=dataset.classes)
    model = loaded.classifier.to(device)
    opened = _open(job, dataset)
    stream = _stream(job, opened).on(device)
    _check_model(job, dataset, opened, stream, model)
    spec = spec_of(job, loaded, stream, opened.facts)

    def build() -> Adapter:
        return build_adapter(job, model)

    run = Run(spec, build, model, stream, command=job.command, keep=job.keep)
    if job.tensorboard is None:
        return run.execute(folder, save_every=save_every, progress=progress)
    with Events(job.tensorboard, spec, RunFolder(folder / spec.address)) as events:
        record = run.execute(folder, save_every=save_every, progress=events.beside(progress))
        events.end(record)
    return record


#: Earlier name of `execute`.
do = execute


def spec_of(job: Job, model: Loaded | Classifier, stream: Stream, data: Facts) -> RunSpec:
    """Describe a job by its content.

    Args:
        job: The job.
        model: Its model, or the classifier of a model of the table.
        stream: The stream that `open_stream` gives.
        data: The facts of the data that `open_stream` gives.
    """
    cls, protocol = get_method(job.method), get_protocol(job.protocol)
    one_severity = protocol.severities is None and protocol.shows_severity
    loaded = model if isinstance(model, Loaded) else from_table(MODELS[job.model], model)
    return RunSpec(
        method=_method_name(cls),
        settings={name: value for name, value in _arguments(job).items() if name != "seed"},
        model=loaded.facts(),
        data=dict(data),
        protocol=protocol.to_json(times=job.times, order=job.order),
        corruptions=_domains(stream),
        # Domains that are not corruptions have no severity, and --severity no effect.
        severity=job.severity if one_severity and any(s.severity for s in stream.segments) else None,
        images=job.images,
        batch_size=job.batch_size,
        seed=job.seed,
        learn=job.learn,
        source_data=None if job.source_data is None else _source_digest(job, cls),
    )


def _method_name(cls: type[Adapter]) -> str:
    """Name a method for records; one from outside ctta with a digest of its file, so that a changed one is another."""
    name, code = cls.__name__.lower(), sha256_of_code(cls)
    return name if code is None else f"{name}@{code[:12]}"


def build_adapter(job: Job, model: Classifier) -> Adapter:
    """Build the method of a job around its source model.

    Args:
        job: The job.
        model: The source model.
    """
    cls = get_method(job.method)
    return cls(model, **_arguments(job), **_given(job, cls, model))


def open_stream(job: Job, *, keep: bool = False) -> tuple[Stream, Facts]:
    """Open the stream of a job, with the facts of its data.

    Args:
        job: The job.
        keep: Hold generated images in memory, for several runs side by side.
    """
    opened = _open(job, get_dataset(job.stream), keep=keep)
    return _stream(job, opened), opened.facts


def _open(job: Job, dataset: Dataset, *, keep: bool = False) -> Opened:
    protocol = get_protocol(job.protocol)
    wanted = Wanted(
        data=job.data,
        domains=job.corruptions,
        severities=protocol.severities_at(job.severity),
        seed=job.seed,
        image_list=job.image_list,
        side=job.side,
    )
    opened = open_data(dataset, wanted, keep=keep)
    if not protocol.needs_clean or job.clean is None:
        return opened
    images = read_images(job.clean, dataset.classes)
    return replace(opened, clean=images, facts=opened.facts | {"clean": digest_of(images, job.clean)})


def _stream(job: Job, opened: Opened) -> Stream:
    parts = StreamParts(
        domains=opened.domains,
        batch_size=job.batch_size,
        seed=job.seed,
        images=job.images,
        order=job.order,
        times=job.times,
        clean=opened.clean,
    )
    return get_protocol(job.protocol).stream(parts)


def _domains(stream: Stream) -> tuple[str, ...]:
    """The domains that a stream shows, also where it shows them at once."""
    pooled = (segment.images for segment in stream.segments if isinstance(segment.images, Pooled))
    return tuple(domain.name for pool in pooled for domain in pool.domains) or stream.domains


def _arguments(job: Job) -> dict[str, Any]:
    """The recipe for the stream, what the user set, and the seed where the method draws random numbers."""
    cls = get_method(job.method)
    unknown = set(job.settings) - set(cls.arguments())
    if unknown:
        raise ParameterError(
            f"{cls.__name__} has no parameter {sorted(unknown)[0]!r}. It has: {', '.join(sorted(cls.arguments()))}."
        )
    if "seed" in job.settings:
        raise ParameterError("The seed is given with --seed, not with --set.")
    check_arguments(cls, job.settings)
    # One run must have one address: 1 and 1.0 are the same learning rate, and defaults need not be given.
    data = get_dataset(job.stream).name
    defaults, unsaid = cls.arguments(), default_arguments(cls, data)
    settings: dict[str, Any] = {
        k: float(v) if type(v) is int and isinstance(defaults[k], float) else v for k, v in job.settings.items()
    }
    if "statistics" in settings:
        settings["statistics"] = short_form(as_statistics(settings["statistics"]))
    arguments = recipe(cls, data) | {k: v for k, v in settings.items() if v != unsaid[k]}
    return arguments | ({"seed": job.seed} if "seed" in cls.arguments() else {})


def _check_model(job: Job, dataset: Dataset, opened: Opened, stream: Stream, model: Classifier) -> None:
    """Refuse a model that cannot take the images, or has other classes than the data."""
    name, first = bare_target(job.model), stream.segments[0]
    # Two, because some models drop the batch dimension of a single image.
    x = first.images.take(first.order[:2]).floats()
    logits = _logits(model, x if stream.device is None else x.to(stream.device), name, dataset.name)
    highest = max(int(segment.images.y.max()) for segment in stream.segments)
    found = opened.classes or highest + 1
    if highest >= logits.shape[1] or (opened.classes is not None and found != logits.shape[1]):
        own = dataset.classes is None and opened.classes is not None
        advice = (
            "List all its classes in the order of its logits in classes.txt, beside the domains, or choose another "
            "model with --model."
            if own
            else "Choose a model of this data with --model: ctta ls models."
        )
        raise ParameterError(f"{name} knows {logits.shape[1]} classes; {dataset.name} has {found}. {advice}")


def _logits(model: Classifier, x: Tensor, name: str, data: str) -> Tensor:
    """Predict without learning; a failure becomes an error about the size of the images."""
    try:
        with torch.no_grad():
            return model(x)
    except CttaError:
        raise
    except Exception as error:  # a model can fail anywhere inside
        reason = (str(error) or type(error).__name__).split("\n", maxsplit=1)[0].rstrip(".")
        size = " x ".join(map(str, x.shape[1:]))
        raise ImageShape(
            f"{name} cannot take the images of {data}, {size} (channels, height, width): {reason}. Resize the images "
            "(--side, for image files of your own), or choose another model with --model."
        ) from error


def _source_digest(job: Job, cls: type[Adapter]) -> str:
    assert job.source_data is not None
    if not {"prototypes", "fisher"} & set(cls.arguments()):
        raise ParameterError(f"{cls.__name__} takes no source data. Leave out --source-data.")
    if not job.source_data.is_file():
        raise MissingData(f"There is no file {job.source_data.absolute()} for --source-data.")
    return digest_of(read_images(job.source_data), job.source_data)


def _given(job: Job, cls: type[Adapter], model: Classifier) -> dict[str, Any]:
    """What the method takes from source data."""
    if job.source_data is None:
        return {}
    images = read_images(job.source_data, model.num_classes)
    if "prototypes" in cls.arguments():
        return {"prototypes": prototypes_from_source(model, _batches(images, job))}
    return {"fisher": fisher_from_source(model, _batches(images, job))}


def _batches(images: Images, job: Job) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(job.seed))
    for part in order.split(job.batch_size):  # type: ignore[no-untyped-call]
        if len(part) > 1:
            taken = images.take(part)
            yield taken.floats(), taken.y
