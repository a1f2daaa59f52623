"""A posterior of the source weights for PETAL: SWAG with a diagonal covariance.

Maddox et al., "A simple baseline for Bayesian uncertainty in deep learning", NeurIPS 2019.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta._adapter.layout import safe_layout
from ctta.classifier import Classifier
from ctta.errors import DataError
from ctta.norms import use_batch_statistics
from ctta.prototypes import images_and_labels


class Swag(NamedTuple):
    """A Gaussian posterior of the weights: two flat tensors with a value for every parameter of the model, in order.

    Attributes:
        mean: The means (P,). ``torch.nn.utils.vector_to_parameters(mean, model.parameters())`` puts them into a model.
        var: The variances (P,).
    """

    mean: Tensor
    var: Tensor


@torch.enable_grad()
def swag_from_source(
    model: nn.Module, loader: Iterable[Any], *, lr: float = 1e-3, momentum: float = 0.9, every: int = 1
) -> Swag:
    """Estimate a posterior of the source weights for PETAL: SWAG with a diagonal covariance.

    Training continues with a constant learning rate, and the mean and variance of the weights along the way are
    recorded. Batch norms use the statistics of the batch, as at test time; there is no dropout.

    Args:
        model: The source model, or a `Classifier` around it. It is not changed.
        loader: Batches of source images and labels: pairs, or mappings or objects with ``x`` and ``y``. Each is used
            once: for several epochs, chain several loaders.
        lr: The constant learning rate of SGD. Larger values explore more of the posterior.
        momentum: The momentum of SGD.
        every: Number of batches between two samples of the weights.

    Returns:
        The means and variances, for the arguments ``prior_mean`` and ``prior_var`` of `PETAL`.

    Raises:
        DataError: If the loader gives fewer than ``every`` batches, or the training diverges.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = bn_cnn()
        >>> loader = [(torch.rand(8, 3, 16, 16), torch.arange(8)) for _ in range(3)]
        >>> swag = ctta.swag_from_source(model, loader)
        >>> ctta.PETAL(model, prior_mean=swag.mean, prior_var=swag.var).source_free
        False
    """
    source = copy.deepcopy(model if isinstance(model, Classifier) else Classifier(model)).eval()
    layout = safe_layout(source)
    source.to(memory_format=layout)  # type: ignore[call-overload]
    use_batch_statistics(source)
    parameters = list(source.requires_grad_(True).model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum)
    # Sums of squares would cancel, because the weights differ by little. So the variance is updated along with the
    # mean.
    mean = torch.zeros_like(_flat(parameters))
    spread, taken = torch.zeros_like(mean), 0
    for number, batch in enumerate(loader, 1):
        x, y = images_and_labels(batch, source.num_classes)
        optimizer.zero_grad()
        logits = source(x.to(parameters[0]).to(memory_format=layout))
        F.cross_entropy(logits, y.to(logits.device)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if number % every == 0:
            taken += 1
            shift = _flat(parameters) - mean
            mean = mean + shift / taken
            spread = spread + shift * (_flat(parameters) - mean)
    if not taken or not spread.isfinite().all():
        raise DataError(
            f"A posterior needs at least {every} batches of source images and a training that does not diverge; "
            f"{'the loader gave too few' if not taken else f'it diverged at lr {lr}'}."
        )
    return Swag(mean, spread / taken)


def _flat(parameters: Iterable[Tensor]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters])
