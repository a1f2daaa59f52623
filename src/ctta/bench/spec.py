"""The specification of a run: method, model, data and protocol, as one value with an address."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctta.protocol import Resets

#: A JSON object that describes a model, data or a protocol: its "name" and whatever else identifies it.
Facts = Mapping[str, object]


@dataclass(frozen=True)
class RunSpec:
    """A run by its content: with one version of ctta and torch, equal addresses mean equal numbers.

    Models and data are described by name and digest, never by path.

    Args:
        method: Name of the method; one from outside ctta has a digest of its code appended.
        settings: Constructor arguments of the method that differ from its defaults.
        model: Name, digest and normalisation of the source model.
        data: Name, origin and digest of the data.
        protocol: Name of the protocol, and its own arguments.
        corruptions: The domains of the stream.
        severity: Severity of the corruptions; None if the stream has none or several.
        images: Images per domain; None means all.
        batch_size: Images per batch.
        seed: Seed of the image order, the corruptions and the method.
        learn: Whether the method learns from the stream.
        source_data: Digest of the labelled source images that the method was given, if any.
        extra: Unknown fields of a record's specification, written by another version of ctta.
    """

    method: str
    settings: Facts
    model: Facts
    data: Facts
    protocol: Facts
    corruptions: tuple[str, ...]
    severity: int | None
    images: int | None
    batch_size: int
    seed: int
    learn: bool = True
    source_data: str | None = None
    extra: Facts = field(default_factory=dict)

    @classmethod
    def from_json(cls, spec: Mapping[str, Any]) -> RunSpec:
        """Read a specification from the entry `spec` of a record.

        Args:
            spec: A JSON object; unknown fields are kept in ``extra``.

        Raises:
            KeyError: A field is missing.
        """
        known = {name: spec[name] for name in FIELDS} | {"corruptions": tuple(spec["corruptions"])}
        return cls(**known, extra={name: value for name, value in spec.items() if name not in FIELDS})

    def to_json(self) -> dict[str, Any]:
        """The specification as a JSON object."""
        entries = asdict(self)
        return dict(json.loads(json.dumps(entries | entries.pop("extra"), sort_keys=True)))

    @property
    def model_name(self) -> str:
        """Name of the source model."""
        return str(self.model["name"])

    @property
    def data_name(self) -> str:
        """Name of the dataset."""
        return str(self.data["name"])

    @property
    def protocol_name(self) -> str:
        """Name of the protocol."""
        return str(self.protocol["name"])

    @property
    def rest_on(self) -> tuple[str, ...]:
        """The domains in which the method predicts without learning."""
        found = self.protocol.get("rest_on", ())
        return tuple(map(str, found)) if isinstance(found, (list, tuple)) else ()

    @property
    def resets(self) -> Resets:
        """When the adapter is reset: "never", at every "shift", or before every "batch"."""
        found = self.protocol.get("resets")
        return "shift" if found == "shift" else "batch" if found == "batch" else "never"

    @property
    def times(self) -> int | None:
        """Rounds of the stream; None if the protocol does not repeat."""
        found = self.protocol.get("times")
        return found if isinstance(found, int) else None

    @property
    def address(self) -> str:
        """The first twenty hexadecimal digits of a digest of the content."""
        return address_of(self.to_json())


FIELDS = tuple(field.name for field in fields(RunSpec) if field.name != "extra")


def address_of(spec: Mapping[str, Any]) -> str:
    """The address of a specification.

    Args:
        spec: The specification as a JSON object.
    """
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]
