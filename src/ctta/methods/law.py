"""LAW: learning rates by layer, from the Fisher information of each tensor.

Park et al., "Layer-wise auto-weighting for non-stationary test-time adaptation", WACV 2024.
"""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import cross_entropy, entropy
from ctta.methods._parts.layer_rates import LayerRates
from ctta.methods._parts.tensors import parts
from ctta.options import StateOptions, check_bounds
from ctta.recipes import without_optimizer
from ctta.registry import register


@register
class LAW(LayerRates):
    """Train each tensor at a rate that grows with its Fisher information, to lower entropy and the gap to a view.

    The squared gradients of the log-likelihood of the predicted classes add up along the stream. The tensor with the
    largest sum learns at the full rate, and the one with the smallest does not learn.

    Args:
        model: The source model, or a `Classifier` around it.
        lr: The learning rate of the tensor with the most information.
        tau: Exponent of the scaled information. Above 1, fewer tensors learn.
        lambda_ce: Weight of the consistency between the batch and its augmented view, per class.
        weight_decay: The multiple of each weight that is added to its gradient.
        stale_gradient: Add the gradient of the previous step to that of the likelihood, as the authors' code does by
            never clearing it.
        view: The augmentation, a function of images and generator. The default is CoTTA's.
        options: ``seed``, ``reset_every``, ``window``, ``precision`` and ``invalid``; see `Adapter`. The optimizer is
            always a new Adam at every step.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.LAW(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    recipes = without_optimizer(
        lr={"cifar10-c": 1e-3, "cifar100-c": 5e-5, "imagenet-c": 2e-4, "domainnet-126": 2e-4},
        tau={"cifar10-c": 1.0, "cifar100-c": 0.6, "imagenet-c": 1.0, "domainnet-126": 1.0},
        lambda_ce={"cifar10-c": 0.1, "cifar100-c": 1.0, "imagenet-c": 10.0, "domainnet-126": 10.0},
    )

    fisher: Tensor
    last_gradient: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 1e-3,
        tau: float = 1.0,
        lambda_ce: float = 0.1,
        weight_decay: float = 0.0,
        stale_gradient: bool = False,
        view: AnyView = View(),  # noqa: B008, a frozen value
        **options: Unpack[StateOptions],
    ) -> None:
        super().__init__(model, lr=lr, weight_decay=weight_decay, lambda_ce=lambda_ce, view=view, **options)
        self.tau = tau
        self.stale_gradient = stale_gradient
        check_bounds(self, tau=(0, math.inf))
        trained = self.convolutions_and_norms()
        # The dtype that a stack of their gradients has; the parameters may be of several.
        dtype = functools.reduce(torch.promote_types, [p.dtype for p in trained])
        self.register_buffer("fisher", trained[0].detach().new_zeros(len(trained), dtype=dtype))
        self.register_buffer("last_gradient", None)
        self.begin(trained)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, choose the rates, then take one step on entropy and consistency."""
        logits = self.student(x)
        yield logits.detach()
        logits_aug = self.student(self.view(x, self.generator))
        fisher = self.fisher + self.information(logits)
        consistency = self.lambda_ce * (logits.shape[1] * cross_entropy(logits_aug, logits).mean())
        loss = entropy(logits).mean() + consistency
        gradient = self.descend_at(loss, self.rates_of(fisher))
        self.fisher = fisher
        if self.stale_gradient:
            self.last_gradient = gradient
        return Step(logits.detach(), loss.item())

    def information(self, logits: Tensor) -> Tensor:
        """Return the mean squared gradient of the log-likelihood of the predicted classes, per tensor (K,).

        Args:
            logits: Logits (N, C) with their graph, which is kept.
        """
        likelihood = F.cross_entropy(logits, logits.detach().argmax(1))
        self.require_gradient(likelihood.requires_grad)
        gradients = torch.autograd.grad(likelihood, self.trained, retain_graph=True, materialize_grads=True)
        if self.last_gradient is not None:
            stale = parts(self.last_gradient, self.trained)
            gradients = tuple(g + last for g, last in zip(gradients, stale, strict=True))
        squares = torch.stack([(g**2).mean() for g in gradients])
        self.require_finite(squares.sum())
        return squares

    def rates_of(self, fisher: Tensor) -> Tensor:
        """Return the rate of every tensor: the root of its information, scaled to [0, 1], to the power of tau.

        Args:
            fisher: The information of every tensor (K,).
        """
        low, high = fisher.sqrt().aminmax()
        return ((fisher.sqrt() - low) / (high - low + 1e-8)) ** self.tau
