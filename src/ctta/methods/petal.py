"""PETAL: CoTTA with a Gaussian posterior of the source weights, and restoration of the weights that matter least.

Brahma and Rai, "A probabilistic framework for lifelong test-time adaptation", CVPR 2023.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import FromSource, Learning, Step
from ctta.augment import AnyView, View
from ctta.errors import ParameterError
from ctta.methods._parts.swag import Swag, swag_from_source
from ctta.methods.cotta import CoTTA
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import ema_

__all__ = ["PETAL", "Swag", "swag_from_source"]


@register
class PETAL(CoTTA):
    """Learn as CoTTA does, near a posterior of the source weights, and restore the weights that matter least.

    The posterior is a Gaussian for every weight, from a short training on source data (`swag_from_source`): weights
    that varied little there are held tightly. Without it, all weights of the student are held near the source with
    equal strength, which is L2-SP. After each step the weights with the smallest squared gradients return to the
    source. PETAL-SRes restores random weights instead.

    Args:
        model: The source model, or a `Classifier` around it. The paper uses the mean network of the posterior.
        alpha: Momentum of the teacher.
        views: How many augmented views are averaged. They are the main cost.
        p_th: The views are used if the mean confidence of the source on the batch is below this value; see `CoTTA`.
        prior_mean: The posterior's mean of every parameter, in their order, as one flat tensor from `swag_from_source`.
            If it is left out, the source weights are used, and no source data is needed.
        prior_var: The posterior's variance of every parameter, in the same form. If it is left out, 1.
        prior_weight: Weight of the negative log posterior.
        restoration: Which weights are restored: those with the smallest squared gradients ("fisher", PETAL-FIM), or
            "random" ones (PETAL-SRes).
        quantile: The share of weights that "fisher" restores at each step.
        restore_p: The share of weights that "random" restores at each step.
        symmetric: Use the symmetric cross-entropy, as the authors do on ImageNet.
        view: The augmentation, a function of images and generator.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.PETAL(bn_cnn(), views=2)
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    from_source = FromSource(("prior_mean", "prior_var"), swag_from_source)
    recipes = per_dataset(
        sgd_lr=0.01,
        p_th={"cifar10-c": 0.92, "cifar100-c": 0.72, "imagenet-c": 0.1, "domainnet-126": 0.1},
        prior_weight={"cifar10-c": 1e-9, "cifar100-c": 1e-9, "imagenet-c": 1e-11, "domainnet-126": 1e-11},
        quantile={"cifar10-c": 0.03, "cifar100-c": 0.03, "imagenet-c": 0.003, "domainnet-126": 0.003},
        restore_p={"cifar10-c": 0.01, "cifar100-c": 0.01, "imagenet-c": 0.001, "domainnet-126": 0.001},
        symmetric={"cifar10-c": False, "cifar100-c": False, "imagenet-c": True, "domainnet-126": True},
    )

    prior_mean: Tensor | None
    prior_var: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: float = 0.999,
        views: int = 32,
        p_th: float = 0.92,
        prior_mean: Tensor | None = None,
        prior_var: Tensor | None = None,
        prior_weight: float = 1e-8,
        restoration: Literal["fisher", "random"] = "fisher",
        quantile: float = 0.03,
        restore_p: float = 0.01,
        symmetric: bool = False,
        view: AnyView = View(),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(
            model, alpha=alpha, views=views, p_th=p_th, restore_p=restore_p, symmetric=symmetric, view=view, **shared
        )
        self.prior_weight = prior_weight
        self.restoration = restoration
        self.quantile = quantile
        check_bounds(self, prior_weight=(0, math.inf), quantile=(0, 1))
        self.source_free = prior_mean is None and prior_var is None
        self.register_buffer("prior_mean", self._checked("prior_mean", prior_mean))
        self.register_buffer("prior_var", self._checked("prior_var", prior_var))
        self.begin(self.trained)  # again: the posterior is part of the initial state

    def adapt(self, x: Tensor) -> Learning:
        """Predict, learn near the posterior, update the teacher and restore weights."""
        target, augmented = self.pseudo_label(x)
        yield target
        loss = self.consistency(self.student(x), target) + self.prior_weight * self.energy()
        self.require_gradient(loss.requires_grad)
        self.require_finite(loss).backward()  # type: ignore[no-untyped-call]
        # The diagonal of the Fisher matrix, of the whole loss and before the step.
        fisher = [torch.zeros_like(p) if p.grad is None else p.grad**2 for p in self.trained]
        self.apply_gradients()
        ema_(self.teacher, self.student, self.alpha)
        if self.restoration == "random":
            self.restore_randomly()
        else:
            self.restore_least_important(fisher)
        return Step(target, loss.item(), {"augmented": float(augmented)})

    def energy(self) -> Tensor:
        """Return the negative log posterior, 1/2 sum (theta - mean)^2 / (var + 1e-6), up to a constant."""
        means = self.source_of_trained() if self.prior_mean is None else self._of_trained(self.prior_mean)
        one = means[0].new_ones(())
        variances = [one] * len(means) if self.prior_var is None else self._of_trained(self.prior_var)
        terms = [
            ((p - mean) ** 2 / (var + 1e-6)).sum() for p, mean, var in zip(self.trained, means, variances, strict=True)
        ]
        return 0.5 * torch.stack(terms).sum()

    @torch.no_grad()
    def restore_least_important(self, fisher: list[Tensor]) -> None:
        """Restore the weights whose squared gradient lies below its quantile over all weights.

        Args:
            fisher: The squared gradient of every trained parameter.
        """
        threshold = linear_quantile(torch.cat([f.flatten() for f in fisher]), self.quantile)
        for parameter, source, f in zip(self.trained, self.source_of_trained(), fisher, strict=True):
            parameter.copy_(torch.where(f < threshold, source, parameter))

    def _of_trained(self, flat: Tensor) -> list[Tensor]:
        """Extract the values of the trained parameters from a flat tensor of all parameters."""
        parameters = list(self.student.model.parameters())
        pieces = zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True)
        values = {id(p): piece.view(p.shape) for p, piece in pieces}
        return [values[id(p)] for p in self.trained]

    def _checked(self, name: str, flat: Tensor | None) -> Tensor | None:
        if flat is None:
            return None
        count = sum(p.numel() for p in self.student.model.parameters())
        if flat.shape != (count,) or not flat.isfinite().all() or (name == "prior_var" and (flat < 0).any()):
            raise ParameterError(
                f"The {name!r} parameter of PETAL must hold one finite value per parameter of the model, ({count},), "
                f"and a variance none below 0. Got {tuple(flat.shape)} instead. Make it with swag_from_source."
            )
        return flat.detach().to(self.trained[0], copy=True)


def linear_quantile(values: Tensor, share: float) -> Tensor:
    """Return a quantile of many values, interpolated between its two neighbours, without sorting them.

    Unlike torch.quantile it takes any number of values, such as all gradients of a network.

    Args:
        values: The values (N,).
        share: Which quantile, in [0, 1].

    Example:
        >>> linear_quantile(torch.tensor([3.0, 0.0, 1.0, 2.0]), 0.5)
        tensor(1.5000)
    """
    at = share * (len(values) - 1)
    low = math.floor(at)
    below = values.kthvalue(low + 1).values
    return below if low == at else below.lerp(values.kthvalue(low + 2).values, at - low)
