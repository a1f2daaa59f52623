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
    planes = torch.arange(len(x) * channels, dtype=torch.int32).view(-1, channels, 1) * (height * width)
    moved = blurred.view(-1).index_select(0, (planes + source[:, None]).view(-1))
    return gaussian(moved.view_as(blurred), c["sigma"])


def scan_sources(choices: Tensor, reach: int) -> Tensor:
    """Compute the index of the pixel that each pixel ends up with, (N, H·W) int32, without copying sequentially.

    The published code scans the image from the last row and column to the first and copies each pixel from a neighbour.
    If that neighbour was visited earlier in the scan, the pixel gets the value the neighbour had received.

    Args:
        choices: The chosen neighbour, (N, rounds, H, W) in [0, 4 reach²): row offset, then column offset, both in
            [-reach, reach).
        reach: Largest offset.
    """
    n, rounds, height, width = choices.shape
    pixels = height * width
    side = torch.arange(-reach, reach, dtype=torch.int32)
    table = (side[:, None] * width + side).flatten()
    scanned = torch.zeros(height, width, dtype=torch.int32)
    scanned[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = 1
    offsets = table.index_select(0, choices.reshape(-1)).view(choices.shape).mul_(scanned)

    # All images as one, because selecting along a single axis is the fastest way to follow indices.
    here = torch.arange(n * pixels, dtype=torch.int32)
    sources = []
    for offset in offsets.view(n, rounds, pixels).unbind(1):
        # A neighbour further on was visited earlier, or never: then its own offset is 0, and it keeps its value.
        chain = here + offset.clamp(min=0).view(-1)
        while True:  # pointer doubling: each pass halves the remaining length of every chain
            further = chain.index_select(0, chain)
            if torch.equal(further, chain):
                break
            chain = further
        sources.append((here + offset.reshape(-1)).index_select(0, chain))
    composed = sources[0]
    for source in sources[1:]:
        composed = composed.index_select(0, source)
    return composed.view(n, pixels) - here[::pixels, None]
