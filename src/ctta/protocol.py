"""Protocol: which domains arrive in which order, as one value; and the table of those that have a name.

A built-in protocol is one entry here. Others come from `register`, from installed packages with entry points of the
group ``ctta.protocols``, or from the user's own code as ``package.module:name`` or ``file.py:name``. Nothing here
imports torch before a stream is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ctta._system.digests import sha256_of_code
from ctta.errors import CttaError, MissingData, ParameterError, UnknownProtocol
from ctta.registry import NamedRegistry

if TYPE_CHECKING:
    from ctta.datasets.domain import Domain, Labelled
    from ctta.streams.stream import Stream

#: The order of the images of a domain: shuffled with the seed of the run, or as they are stored.
Order = Literal["shuffled", "stored"]

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_SHUFFLED = "shuffled within a domain with seed {seed}, one permutation for all domains of one size"
_STORED = "as stored, one domain after another"


@dataclass(frozen=True)
class StreamParts:
    """What a protocol builds a stream from.

    Args:
        domains: The domains, in the order of the dataset.
        batch_size: Images per batch.
        seed: Seed of the run.
        images: Images to take of each domain; None means all.
        order: Order of the images of a domain.
        times: Rounds, for protocols that repeat.
        clean: The images before corruption, for protocols that need them.
    """

    domains: Sequence[Domain]
    batch_size: int
    seed: int = 0
    images: int | None = None
    order: Order = "shuffled"
    times: int = 1
    clean: Labelled | None = None

    @property
    def shuffle(self) -> int | None:
        """The seed to shuffle images with, or None to keep them as they are stored."""
        return self.seed if self.order == "shuffled" else None


@dataclass(frozen=True)
class Protocol:
    """A protocol that `ctta run` can use.

    Args:
        name: Its name on the command line and in records.
        build: Builds the stream.
        severities: The severities it shows, whatever --severity says; None means the one of --severity.
        shows_severity: Whether --severity has an effect on the stream; False for clean images only.
        needs_clean: Whether it needs the images before corruption.
        rest_on: The domains in which the method only predicts.
        repeats: Whether --times says how often the stream is repeated.
        visits: How often each domain arrives in one round.
        any_domain_order: Whether the domains come in an order that changes with the seed.
        allows_stored: Whether the images of a domain can come in stored order.
        order: How the images are ordered, for records; ``{seed}`` stands for the seed.
        severity_text: What reports say in place of the severity, if it changes.
        summary: One line for `ctta ls protocols`.
    """

    name: str
    build: Callable[[StreamParts], Stream]
    severities: tuple[int, ...] | None = None
    shows_severity: bool = True
    needs_clean: bool = False
    rest_on: tuple[str, ...] = ()
    repeats: bool = False
    visits: int = 1
    any_domain_order: bool = False
    allows_stored: bool = True
    order: str = _SHUFFLED
    severity_text: str | None = None
    summary: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ParameterError(
                f"The name of a protocol must be letters, digits, '.', '_' and '-'. Got {self.name!r} instead."
            )
        if not callable(self.build):
            raise ParameterError(f"The protocol {self.name} needs build, a function that returns a Stream.")

    def severities_at(self, severity: int) -> tuple[int, ...]:
        """Return the severities of the domains that the stream needs.

        Args:
            severity: The severity of --severity, 1 to 5.
        """
        if not 1 <= severity <= 5:
            raise ParameterError(f"The severity must be in 1..5. Got {severity} instead.")
        return (severity,) if self.severities is None else self.severities

    def stream(self, parts: StreamParts) -> Stream:
        """Build the stream, after checking that this protocol can use the parts.

        Args:
            parts: The domains, the clean images and the order, from which the stream is built.

        Raises:
            ParameterError: If images cannot come in stored order.
            MissingData: If the clean images are needed and not there.
        """
        if parts.order not in ("shuffled", "stored"):
            raise ParameterError(f"The order must be shuffled or stored. Got {parts.order!r} instead.")
        if parts.order == "stored" and not self.allows_stored:
            raise ParameterError(f"The {self.name} protocol orders the images itself. Leave out --order stored.")
        if self.needs_clean and parts.clean is None:
            raise MissingData(f"The {self.name} protocol needs the clean images: give --clean an npz with x and y.")
        return self.build(parts)

    def to_json(self, *, times: int = 1, order: Order = "shuffled") -> dict[str, object]:
        """Return the protocol as the specification of a run holds it.

        Args:
            times: Rounds, for protocols that repeat.
            order: Order of the images of a domain.
        """
        found: dict[str, object] = {"name": self.name}
        if self.repeats:
            found["times"] = times
        if self.rest_on:
            found["rest_on"] = list(self.rest_on)
        # Only where they differ from the built-in protocols in shuffled order: those are in the addresses of records.
        if order != "shuffled":
            found["order"] = order
        if (code := sha256_of_code(self.build)) is not None:
            found["code"] = code
        return found


def _continual(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import continual  # noqa: PLC0415

    return continual(parts.domains, batch_size=parts.batch_size, seed=parts.shuffle, images=parts.images)


def _gradual(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import gradual  # noqa: PLC0415

    return gradual(parts.domains, batch_size=parts.batch_size, seed=parts.shuffle, images=parts.images)


def _mixed(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import mixed  # noqa: PLC0415

    return mixed(parts.domains, batch_size=parts.batch_size, seed=parts.seed, images=parts.images)


def _correlated(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import correlated  # noqa: PLC0415

    return correlated(parts.domains, batch_size=parts.batch_size, seed=parts.seed, images=parts.images)


def _recurring(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import recurring  # noqa: PLC0415

    return recurring(_continual(parts), parts.times)


def _random_order(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import random_orders  # noqa: PLC0415

    (stream,) = random_orders(
        parts.domains,
        1,
        batch_size=parts.batch_size,
        seed=parts.seed,
        images=parts.images,
        shuffle=parts.order == "shuffled",
    )
    return stream


def _clean(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import clean  # noqa: PLC0415

    assert parts.clean is not None, "Protocol.stream checks it"
    return clean(parts.clean, batch_size=parts.batch_size, seed=parts.shuffle, most=parts.images)


def _then_clean(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import concatenate  # noqa: PLC0415

    return concatenate(_continual(parts), _clean(parts))


_BUILT_IN = (
    Protocol("continual", _continual, summary="one domain after another"),
    Protocol(
        "gradual",
        _gradual,
        severities=(1, 2, 3, 4, 5),
        visits=9,
        severity_text="rises and falls",
        summary="severities 1-2-3-4-5-4-3-2-1 of each corruption",
    ),
    Protocol(
        "mixed",
        _mixed,
        allows_stored=False,
        order="all domains shuffled into one with seed {seed}",
        summary="images of all domains in every batch",
    ),
    Protocol(
        "correlated",
        _correlated,
        allows_stored=False,
        # The concentration of ctta.streams.protocols.CONCENTRATION.
        order="classes in clumps within a domain: shares of a Dirichlet of 0.1, seed {seed}",
        summary="one domain after another, each with its classes in clumps",
    ),
    Protocol("recurring", _recurring, repeats=True, summary="the continual stream, --times over"),
    Protocol("random-order", _random_order, any_domain_order=True, summary="the domains in an order drawn by the seed"),
    Protocol("clean", _clean, shows_severity=False, needs_clean=True, summary="the clean images only"),
    Protocol("then-clean", _then_clean, needs_clean=True, summary="the corruptions, then the clean images"),
    Protocol(
        "then-clean-resting",
        _then_clean,
        needs_clean=True,
        rest_on=("clean",),
        summary="the same, without learning on the clean images",
    ),
)


#: Protocols by name.
PROTOCOLS = NamedRegistry(UnknownProtocol, Protocol, "ctta.protocol.Protocol", _BUILT_IN)


def register(protocol: Protocol) -> Protocol:
    """Make a protocol known under its name, in this process.

    Args:
        protocol: The protocol.

    Raises:
        ParameterError: If it is not a `Protocol`, or has the name of a built-in one.
    """
    return PROTOCOLS.register(protocol, getattr(protocol, "build", None))


def get_protocol(name: str) -> Protocol:
    """Return the protocol of this name.

    Args:
        name: A name that `ctta ls protocols` gives, or a `Protocol` as ``package.module:name`` or ``file.py:name``.

    Raises:
        UnknownProtocol: With the nearest known name.
        PluginError: If it belongs to a plug-in that fails to import.
        UserCodeError: If the user's own code does not exist or fails to import.
    """
    return PROTOCOLS.get(name)


def protocol_of(recorded: Mapping[str, object]) -> Protocol | None:
    """Return the protocol that a record names, or None if it is not known here.

    Args:
        recorded: The protocol as the specification of a run holds it.
    """
    entry = PROTOCOLS.find(str(recorded.get("name")))
    try:
        return None if entry is None else entry.load()
    except CttaError:  # a plug-in that is broken by now must not keep records from being read
        return None


def order_text(recorded: Mapping[str, object], seed: int) -> str:
    """Say how the images of a run are ordered.

    Args:
        recorded: The protocol as the specification of the run holds it.
        seed: Seed of the run.
    """
    if recorded.get("order") == "stored":
        return _STORED
    protocol = protocol_of(recorded)
    return (_SHUFFLED if protocol is None else protocol.order).replace("{seed}", str(seed))
