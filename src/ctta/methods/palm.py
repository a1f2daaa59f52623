"""PALM: learning rates by layer, from how uncertain the prediction is and how sensitive each parameter is.

Maharana et al., "PALM: Pushing adaptive learning rate mechanisms for continual test-time adaptation", AAAI 2025.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import cross_entropy, entropy
from ctta.methods._parts.layer_rates import LayerRates
from ctta.methods._parts.tensors import flat, parts
from ctta.options import StateOptions, check_bounds
from ctta.recipes import without_optimizer
from ctta.registry import register


@register
class PALM(LayerRates):
    """Choose by gradients which tensors to train and how fast, then minimise entropy and the gap to an augmented view.

    The gradient of the divergence from a uniform prediction shows which tensors are uncertain: those for which it is
    small. Only they get a new learning rate, from the sensitivity of their values, weight times gradient, and how far
    it is from its moving average. A tensor that was never uncertain does not move.

    Args:
        model: The source model, or a `Classifier` around it.
        lr: The learning rate that is scaled for every tensor.
        temperature: Divides the logits before the comparison with a uniform prediction. Higher values make gradients
            smaller, and more tensors uncertain.
        eta: A tensor is uncertain if the absolute values of its gradient sum to at most this.
        beta: Momentum of the sensitivity.
        e_margin: The entropy of an image is minimised if it is below this value, in nats. Unlike that of `EATA`, it is
            not in units of ln C.
        lambda_ce: Weight of the consistency between the batch and its augmented view, per class.
        weight_decay: The multiple of each weight that is added to its gradient.
        view: The augmentation, a function of images and generator. The default is CoTTA's.
        options: ``seed``, ``reset_every``, ``window``, ``precision`` and ``invalid``; see `Adapter`. The optimizer is
            always a new Adam at every step.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.PALM(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    recipes = without_optimizer(
        lr={"cifar10-c": 5e-4, "cifar100-c": 5e-4, "imagenet-c": 5e-5, "domainnet-126": 5e-5},
        beta={"cifar10-c": 0.5, "cifar100-c": 0.1, "imagenet-c": 0.5, "domainnet-126": 0.5},
        temperature={"cifar10-c": 50.0, "cifar100-c": 100.0, "imagenet-c": 1000.0, "domainnet-126": 1000.0},
        eta={"cifar10-c": 1.0, "cifar100-c": 0.5, "imagenet-c": 0.3, "domainnet-126": 0.3},
        weight_decay={"cifar10-c": 0.0, "cifar100-c": 5e-4, "imagenet-c": 0.0, "domainnet-126": 0.0},
    )

    sensitivity: Tensor
    rates: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 5e-4,
        temperature: float = 50.0,
        eta: float = 1.0,
        beta: float = 0.5,
        e_margin: float = 0.4,
        lambda_ce: float = 0.01,
        weight_decay: float = 0.0,
        view: AnyView = View(),  # noqa: B008, a frozen value
        **options: Unpack[StateOptions],
    ) -> None:
        super().__init__(model, lr=lr, weight_decay=weight_decay, lambda_ce=lambda_ce, view=view, **options)
        self.temperature = temperature
        self.eta = eta
        self.beta = beta
        self.e_margin = e_margin
        check_bounds(self, temperature=(1e-6, math.inf), eta=(0, math.inf), beta=(0, 1), e_margin=(0, math.inf))
        trained = self.convolutions_and_norms()
        zeros = torch.zeros_like(flat(trained)).detach()
        self.register_buffer("sensitivity", zeros)
        self.register_buffer("rates", zeros.new_zeros(len(trained)))
        self.begin(trained)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, choose the rates, then take one step on entropy and consistency."""
        logits = self.student(x)
        yield logits.detach()
        logits_aug = self.student(self.view(x, self.generator))
        sensitivity, rates, uncertain = self.choose_rates(logits)
        h = entropy(logits)
        low = h[h.detach() < self.e_margin]
        consistency = self.lambda_ce * (logits.shape[1] * cross_entropy(logits_aug, logits).mean())
        loss = low.sum() / max(len(low), 1) + consistency
        self.descend_at(loss, rates)
        self.sensitivity, self.rates = sensitivity, rates
        log = {"kept": float(len(low)), "uncertain": float(uncertain), "rate": rates.mean().item()}
        return Step(logits.detach(), loss.item(), log)

    def choose_rates(self, logits: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return the averaged sensitivity, the rate of every tensor, and how many tensors are uncertain.

        Args:
            logits: Logits (N, C) with their graph, which is kept.
        """
        # As published, the target is one for every class, not 1 / C.
        uniform = -(logits / self.temperature).log_softmax(1).sum(1).mean()
        self.require_gradient(uniform.requires_grad)
        gradients = torch.autograd.grad(uniform, self.trained, retain_graph=True, materialize_grads=True)
        uncertain = [bool(self.require_finite(g.abs().sum()) <= self.eta) for g in gradients]
        averages, rates = parts(self.sensitivity, self.trained), list(self.rates)
        for k in (k for k, chosen in enumerate(uncertain) if chosen):
            s = (self.trained[k].detach() * gradients[k]).abs()
            averages[k] = self.beta * averages[k] + (1 - self.beta) * s
            rates[k] = (((s - averages[k]).abs() + 1e-8) / (averages[k] + 1e-8)).mean()
        return flat(averages), torch.stack(rates), sum(uncertain)
