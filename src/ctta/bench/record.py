"""The run record: every fact behind a number, as a value and as JSON. ``SCHEMA`` documents each key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ctta.bench.scores import Count
from ctta.bench.spec import RunSpec
from ctta.method_table import after_mark
from ctta.version import __version__

if TYPE_CHECKING:
    from ctta.bench.folder import read_record, read_records

__all__ = ["FORMAT", "OPTIONAL", "READABLE", "SCHEMA", "Record", "other_version", "read_record", "read_records"]

FORMAT = 2
READABLE = (1, 2)  # 1 has no digest


def _text(text: str) -> dict[str, str]:
    return {"text": text}


#: What is scored if a method uses the batch before it predicts.
SCORED_AFTER = "the answer given after using the batch"


@dataclass(frozen=True)
class Record:
    """What was run and how it ended. Each field is the entry of that name in the file, as documented in `SCHEMA`.

    Args:
        format: Version of the schema.
        address: Digest of ``spec``, and the name of the run's folder.
        spec: What was run: method, settings, model, data, protocol, seed and so on.
        settings: Every constructor argument of the method, defaults included.
        source_free: Whether the method was given no source data.
        metric: What ``errors`` and ``mean`` measure.
        direction: Whether lower or higher is better.
        normalisation: Where images are normalised, and with which mean and standard deviation.
        order: How the images of a domain are ordered.
        scored: Which predictions are scored.
        passes: Forward passes per step, and how many of them are differentiated.
        errors: Error of each domain in percent, in order of first appearance.
        mean: Unweighted mean of ``errors``, in percent.
        counts: Number of images and of incorrect predictions in each domain.
        images: Number of images predicted.
        images_per_second: Images per second spent inside the method.
        seconds: Seconds spent inside the method.
        peak_memory: Largest resident size of the process in bytes; None if it could not be measured.
        skipped: Number of steps whose loss was not finite.
        environment: Versions, threads, device and processor.
        steps: Name of the file in the same folder with one JSON line per step.
        command: The command line that started the run.
        complete: Whether the stream has ended.
        rounds: Error of each round in percent; None if the stream does not repeat, or the record is older than this
            entry.
        data_title: Name of the user's own folder or file; None for a dataset that has a name.
        class_names: Names of the classes in the order of the labels; None if no class folders define them.
        extra: Unknown entries of the file, written by another version of ctta.
    """

    format: int = field(metadata=_text("version of this schema"))
    address: str = field(metadata=_text("digest of `spec`, and the name of the run's folder"))
    spec: RunSpec = field(
        metadata=_text(
            "method, settings, model and data with digests, protocol, corruptions, severity, images, batch size, seed"
        )
    )
    settings: Mapping[str, object] = field(
        metadata=_text("every constructor argument of the method, defaults included")
    )
    source_free: bool = field(metadata=_text("whether the method was given no source data"))
    metric: str = field(metadata=_text("what `errors` and `mean` are"))
    direction: str = field(metadata=_text("whether lower or higher is better"))
    normalisation: str = field(metadata=_text("where images are normalised, with which mean and std"))
    order: str = field(metadata=_text("how the images of a domain are ordered"))
    scored: str = field(metadata=_text("which predictions are scored"))
    passes: tuple[int, int] = field(metadata=_text("forward passes per step, and how many of them are differentiated"))
    errors: Mapping[str, float] = field(
        metadata=_text("percent incorrect in each domain, in order of first appearance")
    )
    mean: float = field(metadata=_text("unweighted mean of `errors`"))
    counts: Mapping[str, Count] = field(metadata=_text("images and incorrect predictions in each domain"))
    images: int = field(metadata=_text("number of images predicted"))
    images_per_second: float = field(metadata=_text("images divided by the seconds spent inside the method"))
    seconds: float = field(metadata=_text("seconds spent inside the method"))
    peak_memory: int | None = field(
        metadata=_text(
            "largest resident size of the process in bytes, everything included; except on Linux, earlier runs too"
        )
    )
    skipped: int = field(metadata=_text("steps whose loss was not finite"))
    environment: Mapping[str, object] = field(metadata=_text("versions, threads, device, processor"))
    steps: str = field(metadata=_text("file in the same folder with one JSON line per step"))
    command: str = field(metadata=_text("the command line that started the run"))
    complete: bool = field(metadata=_text("true once the stream has ended"))
    rounds: tuple[float, ...] | None = field(
        default=None,
        metadata={"optional": "true"} | _text("percent incorrect in each round, the mean over its domains"),
    )
    data_title: str | None = field(
        default=None, metadata={"optional": "true"} | _text("name of the user's own folder or file of images")
    )
    class_names: tuple[str, ...] | None = field(
        default=None,
        metadata={"optional": "true"} | _text("names of the classes in the order of the labels, from class folders"),
    )
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def predicts_first(self) -> bool:
        """Whether the method predicts before it uses anything from the batch."""
        return self.scored != SCORED_AFTER and not after_mark(self.spec.method)

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Record:
        """Read a record from a JSON object that has the entries of the schema.

        Args:
            entries: The object; entries that are not in the schema are kept in ``extra``.

        Raises:
            KeyError: An entry is missing.
        """
        known = {key: entries[key] for key in SCHEMA}
        known["spec"] = RunSpec.from_json(entries["spec"])
        known["passes"] = tuple(entries["passes"])
        known |= {key: tuple(entries[key]) for key in ("rounds", "class_names") if entries.get(key) is not None}
        known["data_title"] = entries.get("data_title")
        known["counts"] = {domain: Count(**count) for domain, count in entries["counts"].items()}
        return cls(**known, extra={k: v for k, v in entries.items() if k not in SCHEMA and k not in OPTIONAL})

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON object: the entries of the schema in its order, optional ones, then extra ones."""
        entries: dict[str, Any] = {key: getattr(self, key) for key in SCHEMA}
        entries |= {key: value for key in OPTIONAL if (value := getattr(self, key)) is not None}
        entries["spec"] = self.spec.to_json()
        entries["counts"] = {domain: {"images": c.images, "wrong": c.wrong} for domain, c in self.counts.items()}
        return dict(json.loads(json.dumps(entries | dict(self.extra))))


_TEXTS = {field.name: field.metadata for field in fields(Record) if field.metadata}

#: Meaning of the entries that every record has.
SCHEMA = {name: str(facts["text"]) for name, facts in _TEXTS.items() if "optional" not in facts}

#: Meaning of the entries that only some records have.
OPTIONAL = {name: str(facts["text"]) for name, facts in _TEXTS.items() if "optional" in facts}


def other_version(record: Record) -> str | None:
    """The versions that wrote a record, if their major version is not the one installed here.

    Args:
        record: The record.
    """
    here = {"ctta": __version__, "torch": version("torch")}
    wrote = {name: str(record.environment.get(name, here[name])) for name in here}
    other = [name for name in here if _major(wrote[name]) != _major(here[name])]
    return ", ".join(f"{name} {wrote[name]} (here {here[name]})" for name in other) or None


def _major(text: str) -> str:
    return text.partition(".")[0]


def __getattr__(name: str) -> Any:
    # These functions are in a module that imports this one.
    if name not in ("read_record", "read_records"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("ctta.bench.folder"), name)
