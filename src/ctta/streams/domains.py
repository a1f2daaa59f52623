"""Shared by all protocols: check the list of domains, order the images of one, and join several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ctta._checks.numbers import check_seed, check_whole
from ctta.datasets.corrupted import Pooled
from ctta.datasets.domain import Domain
from ctta.errors import ParameterError


def given(domains: Domain | Iterable[Domain]) -> tuple[Domain, ...]:
    """Return the domains of a stream; a single one is treated as a list of one.

    Args:
        domains: What the caller of a protocol gave.

    Raises:
        ParameterError: If it is not a list of at least one domain.
    """
    if isinstance(domains, Domain):
        return (domains,)
    found = () if isinstance(domains, str) or not isinstance(domains, Iterable) else tuple(domains)
    if not found or not all(isinstance(domain, Domain) for domain in found):
        got = next((type(item).__name__ for item in found if not isinstance(item, Domain)), None)
        raise ParameterError(
            "A stream needs a list of at least one Domain, such as corrupted(images, ['fog']) gives. "
            f"Got {f'{got} in it' if got else 'none' if isinstance(domains, Sequence) else type(domains).__name__}."
        )
    return found


def image_order(size: int, seed: int | None, images: int | None) -> Tensor:
    """Return the positions of a domain's images in the order of arrival.

    Args:
        size: Images of the domain.
        seed: Seed that shuffles them; None keeps their order.
        images: Images to take, the first of that order; None takes all.
    """
    if images is not None:
        check_whole(images, "The 'images' per domain")
        if images > size:
            raise ParameterError(f"The 'images' per domain must be in 1..{size}. Got {images} instead.")
    whole = torch.arange(size)
    if seed is not None:
        check_seed(seed)
        # Shuffle before cutting, so that files sorted by class do not show only their first classes.
        whole = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return whole[:images]


def pooled(domains: Iterable[Domain], seed: int, images: int | None) -> tuple[Domain, Tensor]:
    """Join domains into one, named "mixed", and choose images of each.

    Args:
        domains: The domains to join.
        seed: Seed of the choice.
        images: Images to take of each domain; None takes all.

    Returns:
        The joint domain, with severity 0 if those of the domains differ, and the chosen positions in it.
    """
    several = given(domains)
    check_seed(seed)
    starts = torch.tensor([0, *[len(domain) for domain in several]]).cumsum(0)
    chosen = torch.cat([starts[i] + image_order(len(d), seed, images) for i, d in enumerate(several)])
    severities = {domain.severity for domain in several}
    return Domain("mixed", severities.pop() if len(severities) == 1 else 0, Pooled(several)), chosen
