"""Digital corruptions: contrast, elastic transform, pixelation."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws
from ctta.corruptions.filters import apply_across, apply_down, gaussian


def contrast(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Pull every value towards the mean of its channel.

    Args:
        x: (N, C, H, W), uint8.
        c: `factor`, the fraction of the distance to the mean that remains.
        draws: Unused: this corruption is deterministic.
    """
    pixels = x.shape[2] * x.shape[3]
    levels = x.float()
    # Sums of integers are exact in any order, so the result does not depend on the batch.
    total = levels.sum(3, keepdim=True).double().sum(2, keepdim=True)
    mean = (total / pixels).float()
    return levels.sub_(mean).mul_(c["factor"]).add_(mean)


def elastic_transform(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Warp by a random affine map, then by a smooth random displacement.

    Args:
        x: (N, C, H, W), uint8.
        c: `magnitude` of the displacement, `sigma` of the Gaussian that smooths it and `affine`, how far the affine map
            may move each of its three points along either axis, all in pixels.
        draws: Random numbers for the affine map and the displacement.
    """
    height, width = x.shape[-2:]
    ys, xs = torch.arange(height).float()[:, None], torch.arange(width).float()
    m = _inverse_affine(draws.uniform(3, 2) * 2 - 1, c["affine"], height, width)[..., None, None]
    grid = torch.empty(len(x), 2, height, width)
    for axis, size in enumerate((width, height)):
        torch.add(m[:, 0, axis] * xs, m[:, 1, axis] * ys, out=grid[:, axis])
        grid[:, axis].add_(m[:, 2, axis]).mul_(2 / (size - 1)).sub_(1)
    # With align_corners, reflection is about the centres of the outermost pixels; without, about their outer edges.
    warped = grid_sample(x.float(), grid.permute(0, 2, 3, 1), padding_mode="reflection", align_corners=True)
    if c["magnitude"] == 0:
        return warped

    moves = draws.uniform(2, height, width).mul_(2).sub_(1)
    grid = gaussian(moves, c["sigma"], truncate=3, border="reflect").mul_(c["magnitude"])
    for axis, (here, size) in enumerate(((xs, width), (ys, height))):
        grid[:, axis].add_(here).mul_(2).add_(1).div_(size).sub_(1)
    return grid_sample(warped, grid.permute(0, 2, 3, 1), padding_mode="reflection", align_corners=False)


def _inverse_affine(moves: Tensor, reach: float, height: int, width: int) -> Tensor:
    """Return the affine maps (N, 3, 2), for rows (x, y, 1), that undo a random displacement of three points."""
    third = min(height, width) // 3
    corners = torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64) * third
    before = corners + torch.tensor([width // 2, height // 2])
    after = before + moves.double() * reach
    rows = torch.cat([after, torch.ones(len(after), 3, 1, dtype=torch.float64)], dim=2)
    solution: Tensor = torch.linalg.solve(rows, before.expand_as(after))
    return solution.float()


def pixelate(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Downsample with a box filter and upsample with nearest neighbours.

    Args:
        x: (N, C, H, W), uint8.
        c: `factor`, the size of the downsampled image relative to the original.
        draws: Unused: this corruption is deterministic.
    """
    height, width = x.shape[-2:]
    h, w = max(int(height * c["factor"]), 1), max(int(width * c["factor"]), 1)
    if (height, width) in {(h * k, w * k) for k in (2, 4, 8)}:
        return _whole_boxes(x, height // h)
    # Pillow rounds to 8 bits between the two passes.
    narrow = apply_across(x.float(), _box_matrix(width, w)).add_(0.5).floor_()
    small = apply_down(narrow, _box_matrix(height, h)).add_(0.5).to(torch.uint8)
    wide = small.gather(3, _nearest_source(w, width).expand(*small.shape[:3], -1))
    return wide.index_select(2, _nearest_source(h, height))


def _whole_boxes(x: Tensor, k: int) -> Tensor:
    """Pixelate with boxes of k x k pixels, k a power of two: sums and shifts of integers take half the time."""
    narrow = _rounded_mean([x[..., i::k] for i in range(k)])
    small = _rounded_mean([narrow[..., i::k, :] for i in range(k)]).to(torch.uint8)
    wide = small.unsqueeze(4).expand(*small.shape, k).flatten(3)
    return wide.unsqueeze(3).expand(*wide.shape[:3], k, -1).flatten(2, 3)


def _rounded_mean(parts: list[Tensor]) -> Tensor:
    total = parts[0].to(torch.int16)
    for part in parts[1:]:
        total += part
    count = len(parts)
    return total.add_(count // 2).bitwise_right_shift_(count.bit_length() - 1)


@lru_cache(maxsize=32)
def _box_matrix(size: int, smaller: int) -> Tensor:
    # Follows Pillow's arithmetic to the last bit, which decides to which box a pixel exactly on an edge belongs.
    scale = size / smaller
    centre = (torch.arange(smaller, dtype=torch.float64)[:, None] + 0.5) * scale
    pixel = torch.arange(size, dtype=torch.float64)
    offset = (pixel - centre + 0.5) * (1 / scale)
    inside = (offset > -0.5) & (offset <= 0.5)
    inside &= (pixel >= (centre - scale / 2 + 0.5).floor()) & (pixel < (centre + scale / 2 + 0.5).floor())
    return inside.float() / inside.sum(1, keepdim=True)


@lru_cache(maxsize=32)
def _nearest_source(size: int, larger: int) -> Tensor:
    return ((torch.arange(larger, dtype=torch.float64) + 0.5) * (size / larger)).long()
