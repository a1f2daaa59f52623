"""Visits: domains that come back, each time for a random number of batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ctta._checks.numbers import check_seed, check_whole
from ctta.datasets.domain import Domain
from ctta.streams.domains import given, image_order
from ctta.streams.stream import Segment, Stream


def random_visits(
    domains: Sequence[Domain], *, batch_size: int = 200, seed: int = 0, images: int | None = None
) -> Stream:
    """Return the stream of continual dynamic change (CDC): short and long visits to domains that return.

    While batches remain, a domain is drawn uniformly from those that have some left, and shows a random number of its
    batches, from one to all that are left. Every image is shown once.

    Args:
        domains: The domains to visit.
        batch_size: Images per batch; the last batch of a domain may be smaller.
        seed: Seed of the visits, and of the order of the images within a domain.
        images: Images to take of each domain, the first of that order; None takes all.

    Example:
        >>> from ctta.streams import corrupted, digits, random_visits
        >>> domains = corrupted(digits().stream, ("fog", "snow"))
        >>> stream = random_visits(domains, batch_size=20, images=100, seed=3)
        >>> [(visit.domain, len(visit.order) // 20) for visit in stream.segments]
        [('fog', 4), ('snow', 3), ('fog', 1), ('snow', 2)]
    """
    domains = given(domains)
    check_seed(seed)
    check_whole(batch_size, "The 'batch_size' of a stream")
    generator = torch.Generator().manual_seed(seed)
    # What is left of each domain, batch by batch.
    left = [list(image_order(len(domain), seed, images).split(batch_size)) for domain in domains]  # type: ignore[no-untyped-call]
    visits = []
    while some := [number for number, batches in enumerate(left) if batches]:
        number = some[int(torch.randint(len(some), (1,), generator=generator))]
        count = 1 + int(torch.randint(len(left[number]), (1,), generator=generator))
        shown, left[number] = left[number][:count], left[number][count:]
        domain = domains[number]
        visits.append(Segment(domain.name, domain.severity, domain.images, torch.cat(shown)))
    return Stream(visits, batch_size=batch_size)
