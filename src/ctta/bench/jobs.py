"""From what a user asks for to runs: jobs are plain values, so that any process can take one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctta.adapter import Adapter
from ctta.arguments import check_arguments
from ctta.bench.content import digest_of
from ctta.bench.defaults import default_arguments, recipe
from ctta.bench.folder import RunFolder
from ctta.bench.progress import RunStarted
from ctta.bench.record import Record
from ctta.bench.run import Run
from ctta.bench.sources import CLASSES, open_domains, read_images, severities_of
from ctta.bench.spec import RunSpec
from ctta.bench.tensorboard import Events, require_tensorboard
from ctta.classifier import Classifier
from ctta.device import choose_device
from ctta.digests import sha256_of_code
from ctta.errors import MissingData, ParameterError
from ctta.methods.eata import fisher_from_source
from ctta.nets.by_name import Loaded, from_table, load_model
from ctta.nets.models import MODELS
from ctta.prototypes import prototypes_from_source
from ctta.registry import bare_target, get_method
from ctta.streams.arrays import Images
from ctta.streams.corruptions import CORRUPTIONS
from ctta.streams.domain import Domain
from ctta.streams.generated import Pooled
from ctta.streams.protocols import clean, continual, correlated, gradual, mixed, random_orders, recurring, then
from ctta.streams.stream import Stream

PROTOCOLS = (
    "continual",
    "gradual",
    "mixed",
    "correlated",
    "recurring",
    "random-order",
    "clean",
    "then-clean",
    "then-clean-resting",
)


@dataclass(frozen=True)
class Job:
    """One run as asked for: names and paths.

    ``method`` and ``model`` may be the user's own code, as ``package.module:name`` or ``file.py:name``. ``device`` is
    where to compute; None takes the best device of the machine that the job runs on.
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
    corruptions: tuple[str, ...] = CORRUPTIONS
    severity: int = 5
    images: int | None = None
    batch_size: int = 200
    seed: int = 0
    learn: bool = True
    keep: bool = False
    command: str = ""
    tensorboard: Path | None = None
    device: str | None = None

    def with_seed(self, seed: int) -> Job:
        """The same job with another seed."""
        return replace(self, seed=seed)

    def execute(self, folder: Path, *, save_every: float = 30.0, progress: RunStarted | None = None) -> Record:
        """Run the job; see `execute`."""
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
    loaded = load_model(job.model, job.weights, classes=CLASSES.get(job.stream))
    model = loaded.classifier.to(device)
    stream, data = open_stream(job)
    stream = stream.on(device)
    _refuse_other_classes(job, stream, model)
    spec = spec_of(job, loaded, stream, data)

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


def spec_of(job: Job, model: Loaded | Classifier, stream: Stream, data: dict[str, Any]) -> RunSpec:
    """Describe a job by its content.

    Args:
        job: The job.
        model: Its model, or the classifier of a model of the table.
        stream: The stream that `open_stream` gives.
        data: The facts of the data that `open_stream` gives.
    """
    cls = get_method(job.method)
    loaded = model if isinstance(model, Loaded) else from_table(MODELS[job.model], model)
    return RunSpec(
        method=_method_name(cls),
        settings={name: value for name, value in _arguments(job).items() if name != "seed"},
        model=loaded.facts(),
        data=data,
        protocol=_protocol(job),
        corruptions=_domains(stream),
        severity=None if job.protocol in ("gradual", "clean") or job.stream not in CLASSES else job.severity,
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
    """The method of a job around its source model."""
    cls = get_method(job.method)
    return cls(model, **_arguments(job), **_given(job, cls, model))


def open_stream(job: Job, *, keep: bool = False) -> tuple[Stream, dict[str, Any]]:
    """The stream of a job and the facts of its data; ``keep`` holds its images, for several runs side by side."""
    if job.protocol not in PROTOCOLS:
        raise ParameterError(f"The protocol must be one of {PROTOCOLS}. Got {job.protocol!r} instead.")
    severities = severities_of(job.protocol, job.severity)
    domains, facts = open_domains(
        job.stream,
        job.data,
        corruptions=job.corruptions,
        severities=severities,
        seed=job.seed,
        image_list=job.image_list,
        keep=keep,
    )
    how: dict[str, Any] = {"batch_size": job.batch_size, "seed": job.seed, "images": job.images}
    if job.protocol == "recurring":
        return recurring(continual(domains, **how), job.times), facts
    if job.protocol == "random-order":
        return random_orders(domains, 1, **how)[0], facts
    if "clean" in job.protocol:
        images, facts = _clean_images(job, domains[0], facts)
        source = clean(images, batch_size=job.batch_size, seed=job.seed, most=job.images)
        return source if job.protocol == "clean" else then(continual(domains, **how), source), facts
    protocols: dict[str, Callable[..., Stream]] = {
        "continual": continual,
        "gradual": gradual,
        "mixed": mixed,
        "correlated": correlated,
    }
    return protocols[job.protocol](domains, **how), facts


def _clean_images(job: Job, domain: Domain, facts: dict[str, Any]) -> tuple[Images, dict[str, Any]]:
    """The images before their corruption, and the facts of the data with theirs."""
    if job.clean is not None:
        images = read_images(job.clean, CLASSES.get(job.stream))
        return images, facts | {"clean": digest_of(images, job.clean)}
    before = getattr(domain.images, "images", None)
    if not isinstance(before, Images):
        raise MissingData(f"The {job.protocol} protocol needs the clean images: give --clean an npz with x and y.")
    return before, facts


def _domains(stream: Stream) -> tuple[str, ...]:
    """The domains that a stream shows, also where it shows them at once."""
    pooled = (segment.images for segment in stream.segments if isinstance(segment.images, Pooled))
    return tuple(domain.name for pool in pooled for domain in pool.domains) or stream.domains


def _protocol(job: Job) -> dict[str, Any]:
    """The protocol as a value."""
    if job.protocol == "recurring":
        return {"name": job.protocol, "times": job.times}
    if job.protocol == "then-clean-resting":
        return {"name": job.protocol, "rest_on": ["clean"]}
    return {"name": job.protocol}


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
    # One run must have one address: 1 and 1.0 are the same learning rate, and what is usual need not be said.
    defaults, unsaid = cls.arguments(), default_arguments(cls, job.stream)
    settings = {
        k: float(v) if type(v) is int and isinstance(defaults[k], float) else v for k, v in job.settings.items()
    }
    arguments = recipe(cls, job.stream) | {k: v for k, v in settings.items() if v != unsaid[k]}
    return arguments | ({"seed": job.seed} if "seed" in cls.arguments() else {})


def _refuse_other_classes(job: Job, stream: Stream, model: Classifier) -> None:
    if model.head_name is None:
        return
    highest = max(int(segment.images.y.max()) for segment in stream.segments)
    found = CLASSES.get(job.stream, highest + 1)
    if highest >= model.num_classes or (job.stream in CLASSES and found != model.num_classes):
        raise ParameterError(
            f"{bare_target(job.model)} knows {model.num_classes} classes; {job.stream} has {found}. "
            "Choose a model of this data with --model: ctta ls models."
        )


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
