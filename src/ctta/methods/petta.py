"""PeTTA: RoTTA that senses how far its features have drifted, and then learns more carefully.

Hoang et al., "Persistent test-time adaptation in recurring testing scenarios", NeurIPS 2024.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, FromSource, Learning, Step
from ctta.augment import AnyView, View
from ctta.classifier import Classifier
from ctta.errors import ParameterError, TooFewClasses
from ctta.functional import class_means, cross_entropy, symmetric_cross_entropy
from ctta.methods._parts.feature_statistics import FeatureStatistics, feature_statistics_from_source
from ctta.methods._parts.rotta import Memory, replace_batch_norms, updating
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import ema_, frozen_copy

__all__ = ["FeatureStatistics", "PeTTA", "feature_statistics_from_source"]


@register
class PeTTA(Adapter):
    """Learn from a class-balanced memory, more carefully the further the features drift from those of the source.

    PeTTA is made for long streams on which domains return, where RoTTA slowly collapses. The teacher makes the
    predictions, and the student learns from RoTTA's memory after every batch. The drift of the class means of the
    features, in units of the source's variance, sets how strongly the weights are pulled back to the source and how
    slowly the teacher follows. The unadapted network, with statistics that follow the stream, is a second teacher. The
    memory holds real images, and so do checkpoints.

    Args:
        model: The source model, or a `Classifier` around it.
        feature_mean: Class means of source features (C, d), from `feature_statistics_from_source`. If they are left
            out, no source data is needed and the drift is unknown: ``alpha_0`` and ``lambda_0`` are used as they are.
        feature_var: Class variances of source features (C, d), from the same function. Classes without finite values
            are ignored in the drift.
        alpha_0: The share of the student that the teacher takes in at each step, if there is no drift.
        lambda_0: Weight of the pull towards the source weights, if the drift is large.
        adaptive_alpha: Let the drift reduce ``alpha_0``.
        adaptive_lambda: Let the drift scale ``lambda_0``.
        anchor_weight: Weight of the cross-entropy with the unadapted network.
        regularizer: How weights are compared with the source: "cosine", "l2" or "none".
        loss: "sce", the symmetric cross-entropy of RMT on the memory and a view of it, or "ce" on the view alone.
        statistics_share: The share of the batch at each update of the batch norms' statistics.
        memory_size: The number of images held.
        view: The student's augmentation, a function of images and generator.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> net = bn_cnn()
        >>> mean, var = ctta.feature_statistics_from_source(net, [torch.rand(64, 3, 16, 16)])
        >>> model = ctta.PeTTA(net, feature_mean=mean, feature_var=var, memory_size=8)
        >>> model.step(torch.rand(8, 3, 16, 16)).log["drift"]  # nothing has moved yet
        0.0
    """

    trains = "the weights and biases of batch norms"
    uses_batch_statistics = False
    # The teacher on the batch; then teacher and anchor on the memory, the student on the memory and a view of it.
    passes = (5, 2)
    answers_with = ("teacher",)
    from_source = FromSource(("feature_mean", "feature_var"), feature_statistics_from_source)
    recipes = per_dataset(
        optimizer="adam",
        lr=1e-3,
        lambda_0={"cifar10-c": 10.0, "cifar100-c": 10.0, "imagenet-c": 10.0, "domainnet-126": 1.0},
        loss={"cifar10-c": "sce", "cifar100-c": "sce", "imagenet-c": "ce", "domainnet-126": "ce"},
    )

    feature_mean: Tensor | None
    feature_var: Tensor | None
    class_mean: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        feature_mean: Tensor | None = None,
        feature_var: Tensor | None = None,
        alpha_0: float = 1e-3,
        lambda_0: float = 10.0,
        adaptive_alpha: bool = True,
        adaptive_lambda: bool = True,
        anchor_weight: float = 1.0,
        regularizer: Literal["cosine", "l2", "none"] = "cosine",
        loss: Literal["sce", "ce"] = "sce",
        statistics_share: float = 0.05,
        memory_size: int = 64,
        view: AnyView = View(),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.alpha_0 = alpha_0
        self.lambda_0 = lambda_0
        self.adaptive_alpha = adaptive_alpha
        self.adaptive_lambda = adaptive_lambda
        self.anchor_weight = anchor_weight
        self.regularizer = regularizer
        self.loss = loss
        self.statistics_share = statistics_share
        self.memory_size = memory_size
        self.view = view
        check_bounds(self, alpha_0=(0, 1), lambda_0=(0, math.inf), anchor_weight=(0, math.inf))
        check_bounds(self, statistics_share=(0, 1), memory_size=(1, 100_000))
        self.passes = (5, 2 if loss == "sce" else 1)
        layers = replace_batch_norms(self.student, statistics_share)
        self.require_trainable(layers)
        self.teacher = frozen_copy(self.student)
        self.anchor = frozen_copy(self.student)
        device = next(self.student.parameters()).device
        self.memory = Memory(memory_size, lambda_t=1.0, lambda_u=1.0).to(device)
        self.source_free = feature_mean is None
        mean, var = _checked(feature_mean, feature_var, self.student)
        self.register_buffer("feature_mean", mean)
        self.register_buffer("feature_var", var)
        self.register_buffer("class_mean", None if mean is None else mean.clone())
        self.begin(p for layer in layers for p in (layer.weight, layer.bias) if isinstance(p, nn.Parameter))

    def adapt(self, x: Tensor) -> Learning:
        """Predict with the teacher, offer every image to the memory, and learn from all it holds (Alg. 1)."""
        self.memory.refuse_other_size(x)
        with torch.no_grad():
            logits, features = (self.teacher(x), None) if self.class_mean is None else self.teacher.with_features(x)
        if logits.shape[1] < 2:
            raise TooFewClasses(
                f"PeTTA divides its memory among classes and needs at least 2; {type(self.student.model).__name__} "
                "has 1. Use another method, or give the second class a logit of 0."
            )
        p = logits.softmax(1)
        self.require_finite(p.sum())
        yield logits
        labels, uncertainty = p.argmax(1), -(p * (p + 1e-6).log()).sum(1)
        for image, label, u in zip(x, labels.tolist(), uncertainty.tolist(), strict=True):
            self.memory.offer(image, label, u, classes=p.shape[1])
        drift = self.drift(labels)
        alpha = self.alpha_0 if drift is None or not self.adaptive_alpha else (1 - drift) * self.alpha_0
        weight = self.lambda_0 if drift is None or not self.adaptive_lambda else drift * self.lambda_0
        loss = self.learn_from_memory(weight)
        ema_(self.teacher, self.student, 1 - alpha)
        if features is not None:
            self.follow(features, labels)
        return Step(logits, loss, {"alpha": alpha} | ({} if drift is None else {"drift": drift}))

    def learn_from_memory(self, weight: float) -> float:
        """Take one step on the memory: self-training, pull towards the source weights, and anchor loss.

        Args:
            weight: Weight of the pull towards the source weights.
        """
        images, _ = self.memory.content()
        with updating(self.student, self.teacher, self.anchor):
            with torch.no_grad():
                target, anchored = self.teacher(images), self.anchor(images)
            # With "ce" this pass only updates the statistics.
            with torch.set_grad_enabled(self.loss == "sce"):
                logits = self.student(images)
            logits_aug = self.student(self.view(images, self.generator))
            if self.loss == "sce":
                agreement = symmetric_cross_entropy(logits, target) + symmetric_cross_entropy(logits_aug, target)
                loss = 0.25 * agreement.mean()
            else:
                loss = cross_entropy(logits_aug, target).mean()
            loss = loss + self.anchor_weight * cross_entropy(logits_aug, anchored).mean()
            if self.regularizer != "none":
                loss = loss + weight * self.distance()
            self.descend(loss)
        return loss.item()

    def distance(self) -> Tensor:
        """Return the distance of the trained tensors from the source, averaged over the tensors."""
        pairs = zip(self.trained, self.source_of_trained(), strict=True)
        if self.regularizer == "l2":
            terms = [((p - source) ** 2).sum() for p, source in pairs]
        else:
            terms = [-F.cosine_similarity(p.flatten(), source.flatten(), dim=0) for p, source in pairs]
        return torch.stack(terms).mean()

    def drift(self, labels: Tensor) -> float | None:
        """Return gamma in [0, 1]: how far the means of the predicted classes are from the source; None if unknown.

        Args:
            labels: The predicted classes of the batch (N,).
        """
        if self.class_mean is None or self.feature_mean is None or self.feature_var is None:
            return None
        seen = torch.unique(labels)
        gap = (self.class_mean[seen] - self.feature_mean[seen]) ** 2 / (self.feature_var[seen] + 1e-6)
        # Differs from the authors' code, in which a class without source statistics turns everything to NaN.
        gap = gap[gap.isfinite().all(1)]
        return 1 - math.exp(-gap.mean().item()) if len(gap) else 0.0

    def follow(self, features: Tensor, labels: Tensor) -> None:
        """Move the means of the predicted classes towards the batch: mu <- 0.95 mu + 0.05 mean.

        Args:
            features: The teacher's features of the batch (N, d).
            labels: The predicted classes (N,).
        """
        assert self.class_mean is not None
        means, counts = class_means(features, labels, len(self.class_mean))
        self.class_mean = torch.where((counts > 0).unsqueeze(1), self.class_mean.lerp(means, 0.05), self.class_mean)


def _checked(mean: Tensor | None, var: Tensor | None, model: Classifier) -> tuple[Tensor | None, Tensor | None]:
    if mean is None and var is None:
        return None, None
    weight = model.weight
    if mean is None or var is None or mean.shape != weight.shape or var.shape != weight.shape:
        found = [None if given is None else tuple(given.shape) for given in (mean, var)]
        raise ParameterError(
            f"PeTTA needs 'feature_mean' and 'feature_var', both of shape {tuple(weight.shape)}, or neither. "
            f"Got {found[0]} and {found[1]} instead. Make them with feature_statistics_from_source(model, loader)."
        )
    return mean.detach().to(weight, copy=True), var.detach().to(weight, copy=True)
