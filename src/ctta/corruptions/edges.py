"""Canny edge detection and the chamfer distance to the edges, for batches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad


def canny(x: Tensor, *, low: float, high: float) -> Tensor:
    """Detect edges by the L1 norm of the 3x3 Sobel gradient.

    Args:
        x: Grey levels 0 to 255, (N, 1, H, W).
        low: Gradient above which a pixel is an edge if it is connected to a strong one.
        high: Gradient above which a pixel is a strong edge.

    Returns:
        A boolean map of the same shape.
    """
    p = pad(x, (1, 1, 1, 1), mode="replicate")
    columns = p[..., :-2, :] + 2 * p[..., 1:-1, :] + p[..., 2:, :]
    dx = columns[..., 2:] - columns[..., :-2]
    rows = p[..., :-2] + 2 * p[..., 1:-1] + p[..., 2:]
    dy = rows[..., 2:, :] - rows[..., :-2, :]
    magnitude = dx.abs() + dy.abs()

    m = pad(magnitude, (1, 1, 1, 1))
    h, w = x.shape[-2:]

    def at(down: int, across: int) -> Tensor:
        return m[..., 1 + down : 1 + down + h, 1 + across : 1 + across + w]

    tangent = 2**0.5 - 1  # of 22.5 degrees: the gradient's direction has four sectors
    across = dy.abs() < tangent * dx.abs()
    down = dy.abs() > (tangent + 2) * dx.abs()
    falling = (dx < 0) != (dy < 0)
    ridge_across = (magnitude > at(0, -1)) & (magnitude >= at(0, 1))
    ridge_down = (magnitude > at(-1, 0)) & (magnitude >= at(1, 0))
    ridge_rising = (magnitude > at(-1, -1)) & (magnitude > at(1, 1))
    ridge_falling = (magnitude > at(-1, 1)) & (magnitude > at(1, -1))
    diagonal = torch.where(falling, ridge_falling, ridge_rising)
    ridge = torch.where(across, ridge_across, torch.where(down, ridge_down, diagonal))
    weak = ridge & (magnitude > low)
    return _connected(weak & (magnitude > high), weak)


def _connected(strong: Tensor, weak: Tensor) -> Tensor:
    """Return the weak pixels that are connected to a strong one through weak ones."""
    while True:
        grown = max_pool2d(strong.float(), 3, stride=1, padding=1).bool() & weak
        if torch.equal(grown, strong):
            return strong
        strong = grown


def distance(edges: Tensor, *, farthest: float) -> Tensor:
    """Compute the distance to the nearest edge with 5x5 chamfer steps (1, 1.4, 2.1969).

    Args:
        edges: A boolean map, (N, 1, H, W).
        farthest: Upper bound of the distance.
    """
    found = torch.where(edges, 0.0, farthest)
    h, w = edges.shape[-2:]
    steps = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969, (2, 1): 2.1969, (1, 0): 1.0}
    moves = {(sy * y, sx * x): d for (y, x), d in steps.items() for sy in (1, -1) for sx in (1, -1)}
    while True:
        p = pad(found, (2, 2, 2, 2), value=farthest)
        nearer = found
        for (y, x), length in moves.items():
            nearer = torch.minimum(nearer, p[..., 2 + y : 2 + y + h, 2 + x : 2 + x + w] + length)
        if torch.equal(nearer, found):
            return found
        found = nearer
