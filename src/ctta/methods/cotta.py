"""CoTTA: a mean teacher averaged over augmented views, and weights that randomly return to the source.

Wang et al., "Continual test-time domain adaptation", CVPR 2022.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import cross_entropy, symmetric_cross_entropy
from ctta.norms import use_batch_statistics, weights_and_biases
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import assign_at_, ema_, frozen_copy


@register
class CoTTA(Adapter):
    """Weight-averaged, augmentation-averaged targets and stochastic restoration.

    ``p_th`` is the source confidence below which ``views`` augmented answers are averaged (0: never, above 1:
    always); ``restore_p`` the share of weights given back at each step; ``symmetric`` the loss used on ImageNet.
    """

    trains = "parameters named weight or bias"
    # With augmentation: student, anchor and `views` teacher passes; without: student, anchor and teacher.
    passes = (34, 1)
    answers_with = ("teacher",)
    recipes = per_dataset(
        sgd_lr=0.01,
        p_th={"cifar10-c": 0.92, "cifar100-c": 0.72, "imagenet-c": 0.1, "domainnet-126": 0.1},
        restore_p={"cifar10-c": 0.01, "cifar100-c": 0.01, "imagenet-c": 0.001, "domainnet-126": 0.001},
        symmetric={"cifar10-c": False, "cifar100-c": False, "imagenet-c": True, "domainnet-126": True},
    )

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: float = 0.999,
        views: int = 32,
        p_th: float = 0.92,
        restore_p: float = 0.01,
        symmetric: bool = False,
        view: AnyView = View(),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.alpha, self.views, self.p_th, self.restore_p = alpha, views, p_th, restore_p
        self.symmetric, self.view = symmetric, view
        check_bounds(self, alpha=(0, 1), views=(1, 10_000), p_th=(0, float("inf")), restore_p=(0, 1))
        self.passes = (2 + views, 1)
        use_batch_statistics(self.student)
        self.teacher = frozen_copy(self.student)
        self.anchor = frozen_copy(self.student)
        self.begin(weights_and_biases(self.student))

    def adapt(self, x: Tensor) -> Learning:
        """One step, in the order of Alg. 1."""
        target, augmented = self.pseudo_label(x)  # Eqs. 3, 4
        yield target
        logits = self.student(x)
        if self.symmetric:
            loss = 0.5 * symmetric_cross_entropy(logits, target).mean()
        else:
            loss = cross_entropy(logits, target).mean()  # Eq. 5
        self.descend(loss)
        ema_(self.teacher, self.student, self.alpha)  # Eq. 2
        self.restore_randomly()
        return Step(target, loss.item(), {"augmented": float(augmented)})

    def answer(self, x: Tensor) -> Tensor:
        """The teacher's answer, averaged over views where the source is unsure."""
        return self.pseudo_label(x)[0]

    @torch.no_grad()
    def pseudo_label(self, x: Tensor) -> tuple[Tensor, bool]:
        """The teacher's logits, and whether they are a mean over augmented views."""
        confidence = self.anchor(x).softmax(1).amax(1).mean()
        # Differs from the authors' CIFAR code, which computes the views before it knows whether it needs them.
        if confidence >= self.p_th:
            return self.teacher(x), False
        total = self.teacher(self.view(x, self.generator))
        for _ in range(self.views - 1):
            total = total + self.teacher(self.view(x, self.generator))
        return total / self.views, True

    @torch.no_grad()
    def restore_randomly(self) -> None:
        """Eqs. 7 and 8: give each weight of the student back to the source with probability restore_p."""
        for parameter, source in zip(self.trained, self.source_of_trained(), strict=True):
            assign_at_(parameter, source, self.chosen(parameter))

    def chosen(self, parameter: Tensor) -> Tensor:
        """Which entries of a parameter return to the source: their positions when it is read row by row."""
        return successes(parameter.numel(), self.restore_p, self.generator)


def successes(trials: int, p: float, generator: torch.Generator) -> Tensor:
    """Which of so many independent trials succeed, drawn by the gaps between them: a number per success, not per trial.

    Differs from the authors' code, which draws a number for every weight.
    """
    if not 0 < p < 1:
        return torch.arange(trials if p == 1 else 0)
    expected = trials * p
    enough = math.ceil(expected + 10 * math.sqrt(expected) + 10)  # ten standard deviations
    at = torch.empty(enough, dtype=torch.float64).geometric_(p, generator=generator).cumsum(0) - 1
    return at[at < trials].long()
