"""The mean and variance of source features by predicted class, for PeTTA."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ctta.classifier import Classifier
from ctta.errors import DataError
from ctta.functional import class_means
from ctta.prototypes import source_images


class FeatureStatistics(NamedTuple):
    """The statistics of source features by class.

    Attributes:
        mean: The means (C, d); NaN for a class without images.
        var: The unbiased variances (C, d); NaN for a class with fewer than two images.
    """

    mean: Tensor
    var: Tensor


@torch.no_grad()
def feature_statistics_from_source(
    model: nn.Module, loader: Iterable[Any], *, most: int = 100_000
) -> FeatureStatistics:
    """Compute the mean and variance of source features by the class that the model predicts. Labels are not needed.

    The features are computed with the stored statistics of batch norms.

    Args:
        model: The source model, or a `Classifier` around it.
        loader: Batches of source images in [0, 1]: tensors, (images, labels) pairs, or mappings or objects with ``x``.
        most: Stop reading after this many images.

    Returns:
        The statistics, for the arguments ``feature_mean`` and ``feature_var`` of `PeTTA`.

    Raises:
        DataError: If no class has two images.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> mean, var = ctta.feature_statistics_from_source(bn_cnn(), [torch.rand(64, 3, 16, 16)])
        >>> mean.shape == var.shape
        True
    """
    source = copy.deepcopy(model if isinstance(model, Classifier) else Classifier(model)).eval()
    weight = source.weight
    mean = torch.zeros_like(weight, dtype=torch.float64)
    spread, counts = torch.zeros_like(mean), torch.zeros(len(mean), 1, dtype=torch.long, device=mean.device)
    for batch in loader:
        logits, g = source.with_features(source_images(batch).to(weight))
        g, label = g.double(), logits.argmax(1)
        batch_mean, batch_counts = class_means(g, label, len(mean))
        n = batch_counts.unsqueeze(1)
        # The sums of squares of two sets about their own means, and of the means about the common one.
        shift = batch_mean - mean
        total = (counts + n).clamp(min=1)
        spread += (
            torch.zeros_like(mean).index_add_(0, label, (g - batch_mean[label]) ** 2) + shift**2 * counts * n / total
        )
        mean += shift * n / total
        counts += n
        if int(counts.sum()) >= most:
            break
    if not (counts >= 2).any():
        raise DataError(
            f"Feature statistics need two source images of one predicted class; got {int(counts.sum())} images."
        )
    nan = torch.full_like(mean, torch.nan)
    var = spread / (counts - 1).clamp(min=1)
    return FeatureStatistics(
        mean=torch.where(counts >= 1, mean, nan).to(weight), var=torch.where(counts >= 2, var, nan).to(weight)
    )
