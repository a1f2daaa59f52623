"""The Fisher weights of EATA: how much the source model's predictions depend on each norm parameter."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta._adapter.layout import safe_layout
from ctta.classifier import Classifier
from ctta.errors import DataError
from ctta.methods._parts.tensors import flat
from ctta.norms import norm_affine, use_batch_statistics
from ctta.prototypes import source_images


@torch.enable_grad()
def fisher_from_source(model: nn.Module, loader: Iterable[Any], *, most: int = 2000) -> Tensor:
    """Estimate the Fisher weights of the norm parameters from unlabelled source images.

    They are the mean over batches of the squared gradient of the cross-entropy against the model's own predictions.

    Args:
        model: The source model, or a `Classifier` around it.
        loader: Batches of source images in [0, 1]: tensors, (images, labels) pairs, or mappings or objects with ``x``.
        most: How many images to use at most.

    Returns:
        One weight per norm parameter, as a flat tensor, for the ``fisher`` argument of `EATA`.

    Raises:
        DataError: If the model has no normalisation layers or the loader gives no images.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = bn_cnn()
        >>> fisher = ctta.fisher_from_source(model, [torch.rand(8, 3, 16, 16)])
        >>> ctta.EATA(model, fisher=fisher).source_free
        False
    """
    source = copy.deepcopy(model if isinstance(model, Classifier) else Classifier(model)).eval()
    layout = safe_layout(source)
    source.to(memory_format=layout)  # type: ignore[call-overload]
    use_batch_statistics(source)
    source.requires_grad_(False)
    parameters = norm_affine(source)
    if not parameters or most < 1:
        raise DataError("Fisher weights need a model with normalisation layers and at least one source image.")
    for parameter in parameters:
        parameter.requires_grad_(True)
    total, batches, seen = torch.zeros_like(flat(parameters)).detach(), 0, 0
    for batch in loader:
        x = source_images(batch)[: most - seen]
        logits = source(x.to(parameters[0]).to(memory_format=layout))
        loss = F.cross_entropy(logits, logits.detach().argmax(1))
        total += flat(torch.autograd.grad(loss, parameters, materialize_grads=True)) ** 2
        batches, seen = batches + 1, seen + len(x)
        if seen >= most:
            break
    if batches == 0:
        raise DataError("Fisher weights need at least one batch of source images; the loader gave none.")
    return total / batches
