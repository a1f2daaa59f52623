"""Protocols: functions that build a stream from domains, in the order in which they arrive.

They take domains (``corrupted(images)``, ``cifar10_c(folder)``, ``image_folder(folder)``, ...). In all of them ``seed``
shuffles the images within a domain, the same permutation for domains of one size, and None keeps their order;
``images`` takes the first images of each domain in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ctta._checks.numbers import check_seed, check_whole
from ctta.datasets.domain import Domain, Labelled
from ctta.errors import ParameterError
from ctta.streams.clumps import CONCENTRATION, check_concentration, in_clumps
from ctta.streams.domains import given, image_order, pooled
from ctta.streams.stream import Segment, Stream

#: The severities of `gradual`.
GRADUAL = (1, 2, 3, 4, 5, 4, 3, 2, 1)


def continual(
    domains: Sequence[Domain], *, batch_size: int = 200, seed: int | None = 0, images: int | None = None
) -> Stream:
    """Return a stream of one domain after another, without notice and without a reset.

    Args:
        domains: The domains in order of arrival; a single one is treated as a list of one.
        batch_size: Images per batch; the last batch of a domain may be smaller.
        seed: Seed that shuffles the images within a domain; None keeps their order.
        images: Images to take of each domain, the first of that order; None takes all.
    """
    segments = [Segment(d.name, d.severity, d.images, image_order(len(d), seed, images)) for d in given(domains)]
    return Stream(segments, batch_size=batch_size)


def random_orders(
    domains: Sequence[Domain],
    count: int = 10,
    *,
    batch_size: int = 200,
    seed: int = 0,
    images: int | None = None,
    shuffle: bool = True,
) -> list[Stream]:
    """Return continual streams with the domains in ``count`` random orders.

    Args:
        domains: The domains to put in random orders.
        count: Number of streams, at least 1.
        batch_size: Images per batch; the last batch of a domain may be smaller.
        seed: Seed of the orders of the domains, and of the order of the images if `shuffle`.
        images: Images to take of each domain, the first of their order; None takes all.
        shuffle: Whether to shuffle the images within a domain; False keeps their order.
    """
    domains = given(domains)
    check_seed(seed)
    check_whole(count, "The 'count' of random orders")
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(domains), generator=generator).tolist() for _ in range(count)]
    within = seed if shuffle else None
    return [
        continual([domains[i] for i in order], batch_size=batch_size, seed=within, images=images) for order in orders
    ]


def gradual(
    domains: Sequence[Domain], *, batch_size: int = 200, seed: int | None = 0, images: int | None = None
) -> Stream:
    """Return a stream in which every corruption rises and falls before the next: severities 1-2-3-4-5-4-3-2-1.

    ``domains`` holds each corruption at all its severities, such as ``corrupted(images, severities=range(1, 6))``.
    Paper silent: the error is the mean over all 15 x 9 segments.

    Args:
        domains: Each corruption at severities 1 to 5; corruptions arrive in order of first appearance.
        batch_size: Images per batch; the last batch of a severity may be smaller.
        seed: Seed that shuffles the images within a domain; None keeps their order.
        images: Images to take at each severity, the first of that order; None takes all.
    """
    by_name: dict[str, dict[int, Domain]] = {}
    for domain in given(domains):
        by_name.setdefault(domain.name, {})[domain.severity] = domain
    path = []
    for name, levels in by_name.items():
        if sorted(levels) != [1, 2, 3, 4, 5]:
            raise ParameterError(f"A gradual stream needs severities 1 to 5 of {name}; got {sorted(levels)}.")
        path += [levels[severity] for severity in GRADUAL]
    return continual(path, batch_size=batch_size, seed=seed, images=images)


def mixed(domains: Sequence[Domain], *, batch_size: int = 200, seed: int = 0, images: int | None = None) -> Stream:
    """Return a stream of all domains at once: every batch holds images of any of them, in one random order.

    Args:
        domains: The domains to mix.
        batch_size: Images per batch; the last batch may be smaller.
        seed: Seed of the random order, and of the choice of `images` within a domain.
        images: Images to take of each domain, chosen at random; None takes all.
    """
    pool, chosen = pooled(domains, seed, images)
    order = chosen[torch.randperm(len(chosen), generator=torch.Generator().manual_seed(seed))]
    return Stream([Segment(pool.name, pool.severity, pool.images, order)], batch_size=batch_size)


def correlated(
    domains: Sequence[Domain],
    *,
    concentration: float = CONCENTRATION,
    batch_size: int = 200,
    seed: int = 0,
    images: int | None = None,
) -> Stream:
    """Return a stream of one domain after another, each with its classes in clumps: a Dirichlet over labels.

    Each class is distributed over as many time slots as there are classes, in shares drawn from a Dirichlet of this
    concentration; a slot shows its images class by class. Small values give long runs of one class.

    Args:
        domains: The domains in order of arrival; a single one is treated as a list of one.
        concentration: Parameter of the Dirichlet distribution, a finite number above 0.
        batch_size: Images per batch; the last batch of a domain may be smaller.
        seed: Seed of the Dirichlet shares, of the choice of `images`, and of their order within a class.
        images: Images to take of each domain, chosen at random; None takes all.
    """
    check_concentration(concentration)
    check_seed(seed)
    segments = []
    for number, domain in enumerate(given(domains)):
        order = image_order(len(domain), seed, images)
        generator = torch.Generator().manual_seed(1_000_003 * seed + number)
        clumps = in_clumps(domain.images.y[order].cpu(), concentration, generator)
        segments.append(Segment(domain.name, domain.severity, domain.images, order[clumps]))
    return Stream(segments, batch_size=batch_size)


def recurring(stream: Stream, times: int) -> Stream:
    """Repeat the whole stream: domains come back without notice.

    Args:
        stream: The stream to repeat.
        times: Total number of passes, at least 1.
    """
    check_whole(times, "The 'times' that a stream recurs")
    return Stream(stream.segments * times, batch_size=stream.batch_size, start=stream.start, device=stream.device)


def clean(images: Labelled, *, batch_size: int = 200, seed: int | None = 0, most: int | None = None) -> Stream:
    """Return a stream of clean source images; ``evaluate(..., learn=False)`` predicts without learning.

    Args:
        images: The labelled images of the source.
        batch_size: Images per batch; the last batch may be smaller.
        seed: Seed that shuffles the images; None keeps their order.
        most: Images to take, the first of that order; None takes all.
    """
    return continual([Domain("clean", 0, images)], batch_size=batch_size, seed=seed, images=most)


def concatenate(first: Stream, last: Stream) -> Stream:
    """Concatenate two streams, such as the corruptions and then the clean source.

    Args:
        first: The stream that comes first.
        last: The stream that follows, with the same batch size; its `start` is ignored.
    """
    if last.batch_size != first.batch_size:
        raise ParameterError(
            f"Streams that follow each other need one batch size. Got {first.batch_size} and {last.batch_size}."
        )
    return Stream(first.segments + last.segments, batch_size=first.batch_size, start=first.start, device=first.device)


#: Earlier name of `concatenate`.
then = concatenate
