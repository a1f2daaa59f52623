"""CoTTA: a mean teacher averaged over augmented views; random weights are restored to the source.

Wang et al., "Continual test-time domain adaptation", CVPR 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import cross_entropy, symmetric_cross_entropy
from ctta.methods._parts.restore import RestoresRandomly
from ctta.norms import use_batch_statistics, weights_and_biases
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import ema_, frozen_copy


@register
class CoTTA(RestoresRandomly):
    """Learn from a slowly averaged teacher, and randomly restore some weights to the source.

    CoTTA keeps three networks: a student that learns, a teacher that is a slow moving average of it, and the frozen
    source. The teacher makes the predictions and the targets. If the source is not confident on a batch, the teacher's
    logits are averaged over augmented views. After each step a few randomly chosen weights of the student are restored
    to their source values.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: Momentum of the teacher. 0.999 averages over about a thousand steps.
        views: How many augmented views are averaged. They are the main cost.
        p_th: The views are used if the mean confidence of the source on the batch is below this value: never at 0,
            always above 1. It depends on how confident the source is on clean data, so measure that before you choose a
            value for your own model.
        restore_p: The share of weights restored at each step. 0.01 restores nearly all of them over 500 steps.
        symmetric: Use the symmetric cross-entropy, as the authors do on ImageNet.
        view: The augmentation, a function of images and generator. The default is the authors'.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.CoTTA(bn_cnn(), views=2)
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
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
        self.alpha = alpha
        self.views = views
        self.p_th = p_th
        self.restore_p = restore_p
        self.symmetric = symmetric
        self.view = view
        check_bounds(self, alpha=(0, 1), views=(1, 10_000), p_th=(0, float("inf")), restore_p=(0, 1))
        self.passes = (2 + views, 1)
        use_batch_statistics(self.student)
        self.teacher = frozen_copy(self.student)
        self.anchor = frozen_copy(self.student)
        self.begin(weights_and_biases(self.student))

    def adapt(self, x: Tensor) -> Learning:
        """Predict, learn, update the teacher and restore weights, in the order of Alg. 1."""
        target, augmented = self.pseudo_label(x)  # Eqs. 3, 4
        yield target
        loss = self.consistency(self.student(x), target)
        self.descend(loss)
        ema_(self.teacher, self.student, self.alpha)  # Eq. 2
        self.restore_randomly()
        return Step(target, loss.item(), {"augmented": float(augmented)})

    def consistency(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy with the teacher (Eq. 5), or the symmetric one, averaged over the batch.

        Args:
            logits: The student's logits (N, C).
            target: The teacher's logits (N, C).
        """
        if self.symmetric:
            return 0.5 * symmetric_cross_entropy(logits, target).mean()
        return cross_entropy(logits, target).mean()

    def answer(self, x: Tensor) -> Tensor:
        """Predict with the teacher, averaged over views if the source is not confident."""
        return self.pseudo_label(x)[0]

    @torch.no_grad()
    def pseudo_label(self, x: Tensor) -> tuple[Tensor, bool]:
        """Return the teacher's logits, and whether they are a mean over augmented views.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        confidence = self.anchor(x).softmax(1).amax(1).mean()
        # Differs from the authors' CIFAR code, which computes the views before it knows whether it needs them.
        if confidence >= self.p_th:
            return self.teacher(x), False
        total = self.teacher(self.view(x, self.generator))
        for _ in range(self.views - 1):
            total = total + self.teacher(self.view(x, self.generator))
        return total / self.views, True
