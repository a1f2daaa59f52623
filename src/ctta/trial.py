"""Try a classifier on some images without changing it."""

from __future__ import annotations

import copy

from torch import Tensor

from ctta.classifier import Classifier


def copy_to_try(classifier: Classifier, images: Tensor) -> tuple[Classifier, Tensor]:
    """Return a copy of a classifier in eval mode, and the images with the dtype and on the device of its parameters.

    The copy, because some networks write to their buffers in every forward pass, also in eval mode.

    Args:
        classifier: The classifier.
        images: Images (N, C, H, W) in [0, 1].
    """
    copied = copy.deepcopy(classifier).eval()
    return copied, images.to(next(copied.parameters(), images))
