"""Forward a batch and its augmented view through one network, both with gradients."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ctta.batch_norm import unnoted
from ctta.classifier import Classifier

Features = tuple[Tensor, Tensor]


def view_pass(student: Classifier, view: Callable[[], Tensor], *, recompute: bool) -> Callable[[], Features]:
    """Prepare the forward pass of the augmented view, to be run after that of the batch itself.

    Args:
        student: The network that learns.
        view: Makes the augmented images.
        recompute: Discard the activations of the view and compute them again for its gradients. This saves nearly half
            the memory of a step, for one more forward pass.

    Returns:
        A function that returns the logits (N, C) and features (N, d) of the view.
    """
    if not recompute:
        return lambda: student.with_features(view())

    # The view goes first: gradients flow through the last pass first, so the batch's activations are freed before those
    # of the view are recomputed. The sum of two gradients is the same in either order, bit for bit.
    # Students are in eval mode and draw no random numbers. Restoring torch's generator would affect other threads.
    def forward(images: Tensor) -> Features:
        with unnoted(student):  # moving statistics follow the batch, which comes second here, not its view
            return student.with_features(images)

    made: Features = checkpoint(forward, view(), use_reentrant=False, preserve_rng_state=False)
    return lambda: made
