"""The built-in protocols: one entry each. Nothing here imports torch before a stream is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctta.errors import ParameterError
from ctta.protocol.value import Protocol, StreamParts

if TYPE_CHECKING:
    from ctta.streams.stream import Stream


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

    return correlated(
        parts.domains,
        concentration=float(parts.options["concentration"]),
        batch_size=parts.batch_size,
        seed=parts.seed,
        images=parts.images,
    )


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


def _recurring_correlated(parts: StreamParts) -> Stream:
    from ctta.streams.labels import recurring_correlated  # noqa: PLC0415

    return recurring_correlated(
        parts.domains,
        parts.times,
        concentration=float(parts.options["concentration"]),
        batch_size=parts.batch_size,
        seed=parts.seed,
        images=parts.images,
    )


def _cdc(parts: StreamParts) -> Stream:
    from ctta.streams.visits import random_visits  # noqa: PLC0415

    return random_visits(parts.domains, batch_size=parts.batch_size, seed=parts.seed, images=parts.images)


def _mixed_correlated(parts: StreamParts) -> Stream:
    from ctta.streams.labels import mixed_correlated  # noqa: PLC0415

    return mixed_correlated(
        parts.domains,
        concentration=float(parts.options["concentration"]),
        batch_size=parts.batch_size,
        seed=parts.seed,
        images=parts.images,
    )


def _sorted(parts: StreamParts) -> Stream:
    from ctta.streams.labels import sorted_by_label  # noqa: PLC0415

    return sorted_by_label(parts.domains, batch_size=parts.batch_size, seed=parts.seed, images=parts.images)


def _clean(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import clean  # noqa: PLC0415

    assert parts.clean is not None, "Protocol.stream checks it"
    return clean(parts.clean, batch_size=parts.batch_size, seed=parts.shuffle, most=parts.images)


def _then_clean(parts: StreamParts) -> Stream:
    from ctta.streams.protocols import concatenate  # noqa: PLC0415

    if any(domain.name == "clean" for domain in parts.domains):
        raise ParameterError(
            "This protocol calls the clean images 'clean', so the data must have no domain of that name. Rename its "
            "folder or file, or leave it out with --corruptions."
        )
    return concatenate(_continual(parts), _clean(parts))


def _ccc(parts: StreamParts) -> Stream:
    from ctta.corruption_names import CORRUPTIONS  # noqa: PLC0415
    from ctta.datasets.corrupted import Corrupted  # noqa: PLC0415
    from ctta.streams.ccc import ccc  # noqa: PLC0415
    from ctta.streams.ccc_accuracy import SourceAccuracy, fill_of  # noqa: PLC0415

    assert parts.clean is not None and parts.source is not None, "Protocol.stream checks it"
    options, first = parts.options, parts.domains[0].images
    scale = first.scale if isinstance(first, Corrupted) else None
    measured = SourceAccuracy(
        parts.source,
        parts.clean,
        count=int(options["measured_images"]),
        step=float(options["measured_step"]),
        fill=fill_of(options["fill"]),
        scale=scale,
        progress=parts.progress,
    )
    names = tuple(dict.fromkeys(domain.name for domain in parts.domains))
    return ccc(
        parts.clean,
        measured.grid,
        # If the user names no corruptions, CCC makes its own choice among the fifteen.
        None if not parts.named and set(names) == set(CORRUPTIONS) else names,
        target=float(options["target"]),
        speed=int(options["speed"]),
        step=float(options["step"]),
        length=len(CORRUPTIONS) * len(parts.clean) if parts.images is None else parts.images,
        batch_size=parts.batch_size,
        seed=parts.seed,
        scale=scale,
    )


#: The built-in protocols, in the order of `ctta ls protocols`.
BUILT_IN = (
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
        options={"concentration": 0.1},
        later_options=("concentration",),
        order="classes in clumps within a domain: shares of a Dirichlet of {concentration}, seed {seed}",
        summary="one domain after another, each with its classes in clumps",
    ),
    Protocol("recurring", _recurring, repeats=True, summary="the continual stream, --times over"),
    Protocol(
        "recurring-correlated",
        _recurring_correlated,
        repeats=True,
        allows_stored=False,
        options={"concentration": 0.1},
        order="classes in clumps within a domain: shares of a Dirichlet, seed {seed}, drawn anew in every round",
        summary="PeTTA's: the domains --times over (20 in the paper), classes in clumps, one error per round",
    ),
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
    Protocol(
        "cdc",
        _cdc,
        any_domain_order=True,
        resumes_domains=True,
        allows_stored=False,
        order="visits of random length to a random domain, images shuffled within a domain, seed {seed}",
        summary="continual dynamic change: a random domain for a random number of its batches, again and again",
    ),
    Protocol(
        "mixed-correlated",
        _mixed_correlated,
        allows_stored=False,
        options={"concentration": 0.01},
        order="all domains in one, classes in clumps: chunks of equal size from a Dirichlet, seed {seed}",
        summary="images of all domains in every batch, with the classes in clumps; concentration 0 sorts by label",
    ),
    Protocol(
        "ccc",
        _ccc,
        severities=(5,),
        needs_clean=True,
        needs_source=True,
        any_domain_order=True,
        resumes_domains=True,
        allows_stored=False,
        options={
            "target": 40.0,
            "speed": 1000,
            "step": 0.25,
            "measured_step": 0.5,
            "measured_images": 100,
            "fill": "bilinear",
        },
        order="drawn anew at every pair of severities, seed {seed}",
        severity_text="of two corruptions, in small steps",
        summary="continuously changing corruptions, two at a time, at a target accuracy of the source; --images long",
    ),
    Protocol(
        "reset-at-shift",
        _continual,
        resets="shift",
        summary="one domain after another, the adapter reset at each: it knows the boundaries",
    ),
    Protocol(
        "episodic",
        _continual,
        resets="batch",
        summary="one domain after another, the adapter reset before every batch: nothing is remembered",
    ),
    Protocol(
        "wild-single",
        _continual,
        resets="shift",
        batch_size=1,
        summary="SAR's wild setting 1: one image at a time, the adapter reset at each domain",
    ),
    Protocol(
        "wild-mixed",
        _mixed,
        allows_stored=False,
        order="all domains shuffled into one with seed {seed}",
        summary="SAR's wild setting 2: images of all domains in every batch",
    ),
    Protocol(
        "wild-sorted",
        _sorted,
        resets="shift",
        allows_stored=False,
        order="sorted by label within a domain, images of a class shuffled with seed {seed}",
        summary="SAR's wild setting 3: each domain sorted by label, the adapter reset at each",
    ),
)
