"""A batch and its augmented view through one network, both with gradients."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ctta.classifier import Classifier


class Pair(NamedTuple):
    """Logits (N, C) and features (N, d) of the batch, then of its view."""

    logits: Tensor
    g: Tensor
    logits_aug: Tensor
    g_aug: Tensor


def pair(student: Classifier, x: Tensor, x_aug: Tensor, *, recompute: bool) -> Pair:
    """Two passes; with ``recompute`` the view's activations are not kept but made again for its gradients."""
    if not recompute:
        return Pair(*student.with_features(x), *student.with_features(x_aug))
    # The view first: gradients flow through the last pass first, so that the batch's activations are gone before the
    # view's come back. Two gradients make the same sum in either order, to the bit.
    # Students are in eval mode and draw nothing; keeping torch's generator would rewind it under other threads.
    aug = checkpoint(student.with_features, x_aug, use_reentrant=False, preserve_rng_state=False)
    return Pair(*student.with_features(x), *aug)
