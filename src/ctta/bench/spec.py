"""What a run is: a method, a model, data and a protocol, as one value with an address."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

#: Facts that make two runs' numbers incomparable when they differ; settings and method are what is compared.
COMPARABLE = (
    "data",
    "model",
    "protocol",
    "corruptions",
    "severity",
    "images",
    "batch_size",
    "learn",
)


@dataclass(frozen=True)
class RunSpec:
    """A run by its content: with one version of ctta and torch, the same address gives the same numbers.

    ``data`` and ``model`` are described by name and digest, never by path; ``settings`` are the method's constructor
    arguments that differ from its defaults; ``source_data`` is the digest of labelled source images, where the method
    was given their class means as prototypes.
    """

    method: str
    settings: dict[str, Any]
    model: dict[str, Any]
    data: dict[str, Any]
    protocol: dict[str, Any]
    corruptions: tuple[str, ...]
    severity: int | None
    images: int | None
    batch_size: int
    seed: int
    learn: bool = True
    source_data: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The specification as plain JSON values."""
        return dict(json.loads(json.dumps(asdict(self), sort_keys=True)))

    @property
    def rest_on(self) -> tuple[str, ...]:
        """The domains in which the method only answers."""
        return tuple(self.protocol.get("rest_on", ()))

    @property
    def address(self) -> str:
        """Twenty hexadecimal digits that stand for the content."""
        return address_of(self.to_json())


def address_of(spec: dict[str, Any]) -> str:
    """The address of a specification in JSON."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]
