"""Streams whose labels are not independent: sorted, or distributed over all domains at once by a Dirichlet."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ctta._checks.numbers import check_seed, check_whole
from ctta.datasets.domain import Domain
from ctta.errors import ParameterError
from ctta.streams.clumps import CONCENTRATION, check_concentration, dirichlet_weights, in_clumps
from ctta.streams.domains import given, image_order, pooled
from ctta.streams.stream import Segment, Stream

#: Minimum images per chunk of `mixed_correlated`, if the stream is large enough.
SMALLEST_CHUNK = 10

#: Largest number of time slots of `recurring_correlated`.
MOST_SLOTS = 100

#: Number of deals after which the best one is used.
_DEALS = 1000


def sorted_by_label(
    domains: Sequence[Domain], *, batch_size: int = 200, seed: int = 0, images: int | None = None
) -> Stream:
    """Return a stream of one domain after another, each with all images of a class before those of the next.

    Args:
        domains: The domains in order of arrival; a single one is treated as a list of one.
        batch_size: Images per batch; the last batch of a domain may be smaller.
        seed: Seed of the choice of `images`, and of their order within a class.
        images: Images to take of each domain, chosen at random; None takes all.
    """
    segments = []
    for domain in given(domains):
        order = image_order(len(domain), seed, images)
        order = order[domain.images.y[order].cpu().argsort(stable=True)]
        segments.append(Segment(domain.name, domain.severity, domain.images, order))
    return Stream(segments, batch_size=batch_size)


def recurring_correlated(
    domains: Sequence[Domain],
    times: int,
    *,
    concentration: float = CONCENTRATION,
    batch_size: int = 200,
    seed: int = 0,
    images: int | None = None,
) -> Stream:
    """Return a stream that shows all domains several times, each time with the classes in other clumps: PeTTA's.

    Whenever a domain comes, each class is distributed over time slots in shares drawn from a Dirichlet; there are as
    many slots as classes, but at most 100. A slot shows its images class by class, with the classes in random order.

    Args:
        domains: The domains in order of arrival; a single one is treated as a list of one.
        times: How many times each domain comes: 20 in the paper.
        concentration: Parameter of the Dirichlet distribution, a finite number above 0: in the paper 0.1, and 0.01 for
            CIFAR-100.
        batch_size: Images per batch; the last batch of a domain may be smaller.
        seed: Seed of the Dirichlet shares, of the choice of `images`, and of their order within a class.
        images: Images to take of each domain, chosen at random; None takes all.
    """
    check_concentration(concentration)
    check_seed(seed)
    check_whole(times, "The 'times' that a stream recurs")
    generator = torch.Generator().manual_seed(seed)
    segments = []
    for domain in given(domains) * times:
        order = image_order(len(domain), seed, images)
        clumps = in_clumps(domain.images.y[order].cpu(), concentration, generator, most=MOST_SLOTS, like_petta=True)
        segments.append(Segment(domain.name, domain.severity, domain.images, order[clumps]))
    return Stream(segments, batch_size=batch_size)


def mixed_correlated(
    domains: Sequence[Domain],
    *,
    concentration: float = 0.01,
    batch_size: int = 200,
    seed: int = 0,
    images: int | None = None,
) -> Stream:
    """Return a stream of all domains at once with the classes in clumps: the benchmark's Dirichlet over all domains.

    There are as many chunks as classes. The images of a class, whichever domain they are from, are dealt to the chunks
    in shares drawn from a Dirichlet, except to chunks that already have their part of all images. A chunk shows its
    images class by class, with the classes in random order. The deal is repeated until every chunk has ten images.

    Differs from the benchmark: ten, or half of an even chunk if the stream is too small for that; and after a thousand
    deals, the one whose smallest chunk is largest is used.

    Args:
        domains: The domains to mix.
        concentration: Parameter of the Dirichlet distribution; towards 0 clumps get longer, and 0 sorts by label.
        batch_size: Images per batch; the last batch may be smaller.
        seed: Seed of the deal, and of the choice of `images` within a domain.
        images: Images to take of each domain, chosen at random; None takes all.
    """
    if not isinstance(concentration, (int, float)) or not 0 <= concentration < math.inf:
        raise ParameterError(
            f"The 'concentration' of the stream must be a finite number from 0 on. Got {concentration!r}."
        )
    pool, chosen = pooled(domains, seed, images)
    y = pool.images.y[chosen].cpu()
    generator = torch.Generator().manual_seed(seed)
    order = _in_chunks(y, concentration, generator) if concentration else y.argsort(stable=True)
    return Stream([Segment(pool.name, pool.severity, pool.images, chosen[order])], batch_size=batch_size)


def _in_chunks(y: Tensor, concentration: float, generator: torch.Generator) -> Tensor:
    """Positions ordered by chunk, and within a chunk class by class."""
    counts = torch.unique(y, return_counts=True)[1].tolist()  # images of each class that occurs
    enough = min(SMALLEST_CHUNK, len(y) // (2 * len(counts)))
    best: list[dict[int, Tensor]] = []
    smallest = -1
    for _ in range(_DEALS):
        chunks = _deal(y, counts, concentration, generator)
        if (size := min(sum(map(len, chunk.values())) for chunk in chunks)) > smallest:
            best, smallest = chunks, size
        if smallest >= enough:
            break
    orders = [torch.randperm(len(counts), generator=generator).tolist() for _ in best]
    return torch.cat([c[i] for c, order in zip(best, orders, strict=True) for i in order if i in c])


def _deal(y: Tensor, counts: list[int], concentration: float, generator: torch.Generator) -> list[dict[int, Tensor]]:
    """Deal the images of every class to the chunks; return, for each chunk, its positions by number of the class."""
    chunks: list[dict[int, Tensor]] = [{} for _ in counts]
    held = torch.zeros(len(counts))
    # Sort once, and leave out empty parts: a thousand classes have a million parts, nearly all of them empty.
    by_class = y.argsort(stable=True).split(counts)  # type: ignore[no-untyped-call]
    for number, mine in enumerate(by_class):
        mine = mine[torch.randperm(len(mine), generator=generator)]  # noqa: PLW2901
        weights = dirichlet_weights(len(counts), concentration, generator)
        shares = torch.where(held < len(y) / len(counts), weights, 0)
        ends = ((shares / shares.sum()).cumsum(0) * len(mine)).long().clamp(max=len(mine))
        ends[-1] = len(mine)
        sizes = ends.diff(prepend=torch.zeros(1, dtype=torch.long))
        for chunk in sizes.nonzero().flatten().tolist():
            chunks[chunk][number] = mine[ends[chunk] - sizes[chunk] : ends[chunk]]
        held += sizes
    return chunks
