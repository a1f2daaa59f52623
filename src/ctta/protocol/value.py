"""Protocol: which domains arrive in which order, as one value."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from ctta._system.digests import sha256_of_code
from ctta._system.imports import is_own, user_code
from ctta.errors import MissingData, ParameterError

if TYPE_CHECKING:
    from ctta.classifier import Classifier
    from ctta.datasets.domain import Domain, Labelled
    from ctta.streams.stream import Stream

#: The order of the images of a domain: shuffled with the seed of the run, or as they are stored.
Order = Literal["shuffled", "stored"]

#: When the adapter is reset to its source: never, before the first batch of every domain, or before every batch.
Resets = Literal["never", "shift", "batch"]

#: A value of an option of a protocol.
Option = int | float | str

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")

#: The default description of how images are ordered.
SHUFFLED = "shuffled within a domain with seed {seed}, one permutation for all domains of one size"


@dataclass(frozen=True)
class StreamParts:
    """What a protocol builds a stream from.

    Pass the property `shuffle` as the seed of a stream: it is the seed to shuffle images with, or None with
    ``--order stored``.

    Args:
        domains: The domains, in the order of the dataset.
        batch_size: Images per batch.
        seed: Seed of the run.
        images: Images to take of each domain, or the length of a stream of one domain; None means all.
        order: Order of the images of a domain.
        times: Rounds, for protocols that repeat.
        clean: The images before corruption, for protocols that need them.
        source: The source model, for protocols that choose images by its predictions.
        options: All options of the protocol, by name.
        named: Whether the user named the domains, instead of taking all that the data have.
        progress: Called with the name of the current part, the number of images done and the total, while the source
            model is measured.
    """

    domains: Sequence[Domain]
    batch_size: int
    seed: int = 0
    images: int | None = None
    order: Order = "shuffled"
    times: int = 1
    clean: Labelled | None = None
    source: Classifier | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    named: bool = False
    progress: Callable[[str, int, int], None] | None = None

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
        severities: The severities it shows, regardless of --severity; None means the one given by --severity.
        shows_severity: Whether --severity has an effect on the stream; False for clean images only.
        needs_clean: Whether it needs the images before corruption.
        needs_source: Whether it needs the source model to choose the images.
        resets: When the adapter is reset. "shift" reveals the domain boundaries to the method, and "batch" makes it
            forget the stream; records and tables say so.
        batch_size: The only batch size that it allows; None allows any.
        options: Its options with their defaults; `--option` changes them, and records hold all of them.
        later_options: Names of options that were added when the protocol already had records. Records hold them only
            if they differ from their default, so that the address of a run does not change.
        rest_on: The domains in which the method only predicts.
        repeats: Whether --times sets how often the stream is repeated.
        visits: How often each domain arrives in one round.
        any_domain_order: Whether the domains come in an order that changes with the seed.
        resumes_domains: Whether a domain that comes again, or at another severity, shows other images than before.
        allows_stored: Whether the images of a domain can come in stored order.
        order: How the images are ordered, for records; ``{seed}`` stands for the seed, the name of an option in braces
            for its value.
        severity_text: What reports say in place of the severity, if it changes.
        summary: One line for `ctta ls protocols`.
    """

    name: str
    build: Callable[[StreamParts], Stream]
    severities: tuple[int, ...] | None = None
    shows_severity: bool = True
    needs_clean: bool = False
    needs_source: bool = False
    resets: Resets = "never"
    batch_size: int | None = None
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    later_options: tuple[str, ...] = ()
    rest_on: tuple[str, ...] = ()
    repeats: bool = False
    visits: int = 1
    any_domain_order: bool = False
    resumes_domains: bool = False
    allows_stored: bool = True
    order: str = SHUFFLED
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

    def with_options(self, given: Mapping[str, object]) -> dict[str, Option]:
        """Return all options of the protocol, with the defaults of those that are not given.

        Args:
            given: Options by name; an integer is accepted for an option that is a float.

        Raises:
            ParameterError: If the protocol has no such option, or the type of the value is not that of its default.
        """
        found = dict(self.options)
        for name, value in given.items():
            if name not in found:
                known = f"It has: {', '.join(found)}." if found else "It has none."
                raise ParameterError(f"The {self.name} protocol has no option {name!r}. {known}")
            wanted = type(found[name])
            if wanted is float and type(value) is int and abs(value) <= sys.float_info.max:
                value = float(value)  # noqa: PLW2901 - 1 and 1.0 must give one address
            if type(value) is not wanted:
                raise ParameterError(
                    f"The option {name!r} of the {self.name} protocol must be of the type {wanted.__name__}, such as "
                    f"{found[name]!r}. Got {value!r} instead."
                )
            assert isinstance(value, (int, float, str))
            found[name] = value
        return found

    def stream(self, parts: StreamParts) -> Stream:
        """Build the stream, after checking that this protocol can use the parts.

        Args:
            parts: The domains, the clean images and the order, from which the stream is built.

        Raises:
            ParameterError: If images cannot come in stored order, or the batch size is not the one of the protocol.
            MissingData: If the clean images or the source model are needed but missing.
        """
        if parts.order not in ("shuffled", "stored"):
            raise ParameterError(f"The order must be shuffled or stored. Got {parts.order!r} instead.")
        if parts.order == "stored" and not self.allows_stored:
            raise ParameterError(f"The {self.name} protocol orders the images itself. Leave out --order stored.")
        if self.needs_clean and parts.clean is None:
            raise MissingData(f"The {self.name} protocol needs the clean images: give --clean an npz with x and y.")
        if self.needs_source and parts.source is None:
            raise MissingData(f"The {self.name} protocol needs the source model, to measure how often it is correct.")
        if self.batch_size not in (None, parts.batch_size):
            raise ParameterError(
                f"The {self.name} protocol has batches of {self.batch_size}. Got {parts.batch_size}; leave out "
                "--batch-size."
            )
        from ctta.streams.stream import Stream  # noqa: PLC0415 - protocols are listed without torch

        with nullcontext() if is_own(self.build) else user_code(f"Building the stream of the {self.name} protocol"):
            built = self.build(replace(parts, options=self.with_options(parts.options)))
        if not isinstance(built, Stream):
            raise ParameterError(
                f"The {self.name} protocol must return a ctta.streams.Stream; it returned {type(built).__name__}."
            )
        if not built.segments:
            raise ParameterError(f"The {self.name} protocol must return a stream with images; it has no segment.")
        if self.repeats and len(built) % parts.times:
            raise ParameterError(
                f"The {self.name} protocol must repeat the same steps {parts.times} times; its stream has {len(built)}."
            )
        return built

    def to_json(
        self, *, times: int = 1, order: Order = "shuffled", options: Mapping[str, object] = MappingProxyType({})
    ) -> dict[str, object]:
        """Return the protocol as stored in the specification of a run.

        Args:
            times: Rounds, for protocols that repeat.
            order: Order of the images of a domain.
            options: The options that differ from their defaults.
        """
        found: dict[str, object] = {"name": self.name}
        if self.repeats:
            found["times"] = times
        if self.rest_on:
            found["rest_on"] = list(self.rest_on)
        # Only entries that the built-in protocols in shuffled order lack: existing records have addresses without them.
        if order != "shuffled":
            found["order"] = order
        if self.resets != "never":
            found["resets"] = self.resets
        every = self.with_options(options)
        if kept := {k: v for k, v in every.items() if k not in self.later_options or v != self.options[k]}:
            found["options"] = kept
        if (code := sha256_of_code(self.build)) is not None:
            found["code"] = code
        return found
