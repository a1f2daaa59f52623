"""Glass blur: pixels are replaced by random neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws
from ctta.corruptions.filters import gaussian


def glass_blur(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Blur, copy each pixel from a random neighbour in scan order, blur again.

    Args:
        x: (N, C, H, W), uint8.
        c: `sigma` of the blur and `reach`, the largest offset of a neighbour, in pixels; `rounds`, the number of scans.
        draws: Random numbers for the choice of neighbours.
    """
    channels, height, width = x.shape[1:]
    reach = max(1, int(c["reach"]))  # it may be below 1 at severities below 1, as in CCC
    blurred = gaussian(x.float(), c["sigma"]).add_(2**-10).floor_()
    if int(c["rounds"]) == 0:
        return gaussian(blurred, c["sigma"])
    choices = draws.below(4 * reach**2, int(c["rounds"]), height, width)
    source = scan_sources(choices, reach)
    moved = blurred.flatten(2).gather(2, source[:, None].expand(-1, channels, -1))
    return gaussian(moved.view_as(blurred), c["sigma"])


def scan_sources(choices: Tensor, reach: int) -> Tensor:
    """Compute the index of the pixel that each pixel ends up with, (N, H·W), without copying sequentially.

    The published code scans the image from the last row and column to the first and copies each pixel from a neighbour.
    If that neighbour was visited earlier in the scan, the pixel gets the value the neighbour had received.

    Args:
        choices: The chosen neighbour, (N, rounds, H, W) in [0, 4 reach²): row offset, then column offset, both in
            [-reach, reach).
        reach: Largest offset.
    """
    n, _, height, width = choices.shape
    side = torch.arange(-reach, reach)
    table = (side[:, None] * width + side).flatten()
    here = torch.arange(height * width)
    scanned = torch.zeros(height, width, dtype=torch.bool)
    scanned[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = True
    offsets = torch.where(scanned, table[choices], 0).flatten(2)
    scanned = scanned.flatten()

    composed = here.expand(n, -1)
    for offset in offsets.unbind(1):
        neighbour = here + offset
        visited = (neighbour > here) & scanned.take(neighbour)
        chain = torch.where(visited, neighbour, here)
        while True:  # pointer doubling: each pass halves the remaining length of every chain
            further = chain.gather(1, chain)
            if torch.equal(further, chain):
                break
            chain = further
        composed = composed.gather(1, neighbour.gather(1, chain))
    return composed
