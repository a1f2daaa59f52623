"""The specification of a workload, which describes a run by its content."""

from __future__ import annotations

import hashlib
import json

from ctta._system.digests import sha256_of_code
from ctta.adapter import Adapter
from ctta.bench.arguments import method_arguments
from ctta.bench.content import digest_of
from ctta.bench.data import Facts, read_images
from ctta.bench.spec import RunSpec
from ctta.bench.workload import Workload
from ctta.classifier import Classifier
from ctta.datasets.corrupted import Pooled
from ctta.datasets.corrupted_twice import CorruptedTwice
from ctta.errors import MissingData, ParameterError
from ctta.nets.by_name import Loaded, from_table
from ctta.nets.models import MODELS
from ctta.protocol import get_protocol
from ctta.registry import get_method
from ctta.streams.stream import Stream


def spec_of(work: Workload, model: Loaded | Classifier, stream: Stream, data: Facts) -> RunSpec:
    """Describe a workload by its content.

    Args:
        work: The workload.
        model: Its model, or the classifier of a model in `ctta.nets.models.MODELS`.
        stream: The stream returned by `ctta.bench.inputs.open_stream`.
        data: The facts of the data returned by `ctta.bench.inputs.open_stream`.
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


def _source_digest(work: Workload, cls: type[Adapter]) -> str | None:
    path = work.inputs.source_data
    if path is None:
        return None
    if cls.from_source is None:
        raise ParameterError(f"{cls.__name__} takes no source data. Leave out --source-data.")
    if not path.is_file():
        raise MissingData(f"There is no file {path.absolute()} for --source-data.")
    return digest_of(read_images(path), path)
