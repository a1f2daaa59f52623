"""A model with only some of its classes, for datasets that have only those."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from ctta.classifier import Classifier
from ctta.errors import ModelError, ParameterError


def with_classes(model: Classifier, classes: Sequence[int]) -> Classifier:
    """Return a copy of a model whose head has only the rows of some classes.

    The logits are those of the model at these classes, so that entropies and prototypes involve no other classes.
    ImageNet-R and ImageNet-A are scored like this. A model that already has that many classes is returned unchanged.

    Args:
        model: The model.
        classes: The classes to keep, by their number in the model, in the order of the new ones.

    Raises:
        ParameterError: If the model does not have these classes.
        ModelError: If the head is not a plain linear layer.

    Example:
        >>> import torch
        >>> from ctta import Classifier
        >>> from ctta.nets.class_subset import with_classes
        >>> from ctta.testing.models import bn_cnn
        >>> model, x = Classifier(bn_cnn()).eval(), torch.rand(2, 3, 16, 16)
        >>> torch.allclose(with_classes(model, [7, 2])(x), model(x)[:, [7, 2]])
        True
    """
    if model.num_classes == len(classes):
        return model
    if max(classes) >= model.num_classes:
        raise ParameterError(
            f"The data has {len(classes)} classes of a model with more than {max(classes)}; this one has "
            f"{model.num_classes}. Choose a model of the whole dataset with --model."
        )
    found = copy.deepcopy(model)
    head = found.head
    weight = head._parameters.get("weight")
    if not isinstance(head, (nn.Linear, nn.Conv2d)) or weight is None:
        raise ModelError(f"Only a plain linear head can be cut to some classes; got {type(head).__name__}.")
    rows = torch.tensor(list(classes), device=weight.device)
    head.weight = nn.Parameter(weight.detach()[rows].clone(), requires_grad=weight.requires_grad)
    if head.bias is not None:
        head.bias = nn.Parameter(head.bias.detach()[rows].clone(), requires_grad=head.bias.requires_grad)
    if isinstance(head, nn.Linear):
        head.out_features = len(classes)
    else:
        head.out_channels = len(classes)
    return found
