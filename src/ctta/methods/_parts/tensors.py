"""Several parameters as one vector, so that a method's state is one buffer whatever the network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Return all values in one vector, tensor after tensor.

    Args:
        tensors: The tensors.
    """
    return torch.cat([t.flatten() for t in tensors])


def parts(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Cut a vector into tensors: the inverse of `flat`.

    Args:
        vector: All values.
        like: Tensors with the shapes of the parts, in order.

    Example:
        >>> weight, bias = torch.ones(2, 3), torch.zeros(3)
        >>> [part.shape for part in parts(flat([weight, bias]), [weight, bias])]
        [torch.Size([2, 3]), torch.Size([3])]
    """
    cut = torch.split(vector, [t.numel() for t in like])
    return [part.view(t.shape) for part, t in zip(cut, like, strict=True)]
