"""What PALM and LAW share: a learning rate for every tensor, and a consistency loss between two views."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter
from ctta.augment import AnyView
from ctta.methods._parts.tensors import flat
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import StateOptions, check_bounds


class LayerRates(Adapter):
    """Base of methods that train convolutions and norms, each tensor at its own rate, with a new Adam for every batch.

    A new Adam has no moments, and its first step is lr g / (|g| + eps): nearly the sign of the gradient.

    Args:
        model: The source model, or a `Classifier` around it.
        lr: The learning rate that is scaled for every tensor.
        weight_decay: The multiple of each weight that is added to its gradient.
        lambda_ce: Weight of the consistency between the batch and its augmented view, per class.
        view: The augmentation, a function of images and generator.
        options: Options that do not concern the optimizer; see `Adapter`.
    """

    trains = "the weights and biases of convolutions and normalisation layers"
    # The first pass is differentiated twice: for the rates, and for the step.
    passes = (2, 3)

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float,
        weight_decay: float,
        lambda_ce: float,
        view: AnyView,
        **options: Unpack[StateOptions],
    ) -> None:
        super().__init__(model, optimizer="sgd", momentum=0.0, lr=lr, **options)
        self.weight_decay = weight_decay
        self.lambda_ce = lambda_ce
        self.view = view
        check_bounds(self, weight_decay=(0, math.inf), lambda_ce=(0, math.inf))
        use_batch_statistics(self.student)

    def convolutions_and_norms(self) -> list[nn.Parameter]:
        """Return the weights and biases of convolutions and norms, without the head's, in the order of the network."""
        self.require_trainable(found := list(self._found()))
        return found

    def _found(self) -> Iterator[nn.Parameter]:
        norms = {id(p) for p in norm_affine(self.student)}
        convolutions = [m for m in self.student.modules() if isinstance(m, nn.Conv2d)]
        chosen = norms | {id(p) for m in convolutions for p in m.parameters()}
        chosen -= {id(p) for p in self.student.head.parameters()} if self.student.head_name else set()
        yield from (p for p in self.student.parameters() if id(p) in chosen)

    def descend_at(self, loss: Tensor, rates: Tensor) -> Tensor:
        """Take the first step of a new Adam at the learning rates lr * rates; return the gradient of the loss, flat.

        Args:
            loss: The loss, a scalar.
            rates: One factor per trained tensor (K,).
        """
        self.require_gradient(loss.requires_grad)
        gradients = torch.autograd.grad(self.require_finite(loss), self.trained, materialize_grads=True)
        for parameter, gradient, rate in zip(self.trained, gradients, rates, strict=True):
            g = gradient + self.weight_decay * parameter.detach()
            parameter.grad = rate * g / (g.abs() + 1e-8)
        self.apply_gradients()
        return flat(gradients)
