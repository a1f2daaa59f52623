"""RoTTA: robust statistics, a class-balanced memory and a teacher that prefers recent samples.

Yuan et al., "Robust test-time adaptation in dynamic scenarios", CVPR 2023.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.augment import AnyView, View
from ctta.errors import TooFewClasses
from ctta.functional import cross_entropy
from ctta.methods._parts.rotta import Memory, replace_batch_norms, updating
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import ema_, frozen_copy


@register
class RoTTA(Adapter):
    """Learn from a class-balanced memory of recent, confident samples.

    RoTTA is made for streams in which images of one class arrive together. Batch norms use slowly updated statistics
    instead of those of the batch. The teacher makes the predictions. Every image is offered to a small memory, and the
    student learns from the memory alone, every ``update_every`` images. The memory holds real images, and so do
    checkpoints.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: The share of new statistics at each update. Larger values follow the stream faster.
        nu: The share of the student that the teacher takes in at each update: one minus the momentum of other methods.
        memory_size: The number of images held. If it is below the number of classes, a class holds one image at most;
            64 images of 1000 classes are a thin sample.
        update_every: How many images pass between two updates, whatever the size of the batches.
        lambda_t: Weight of the age when a sample has to be removed from the memory.
        lambda_u: Weight of the uncertainty when a sample has to be removed from the memory.
        view: The student's augmentation, a function of images and generator.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.RoTTA(bn_cnn(), memory_size=8, update_every=8)
        >>> [model.step(torch.rand(4, 3, 16, 16)).log["updates"] for _ in range(4)]
        [0.0, 1.0, 0.0, 1.0]
    """

    trains = "the weights and biases of batch norms"
    uses_batch_statistics = False
    # For a batch of `update_every` images: the teacher predicts, then teacher and student see the memory.
    passes = (3, 1)
    answers_with = ("teacher",)
    recipes = per_dataset(optimizer="adam", lr=1e-3)

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: float = 0.05,
        nu: float = 0.001,
        memory_size: int = 64,
        update_every: int = 64,
        lambda_t: float = 1.0,
        lambda_u: float = 1.0,
        view: AnyView = View(),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.alpha = alpha
        self.nu = nu
        self.memory_size = memory_size
        self.update_every = update_every
        self.lambda_t = lambda_t
        self.lambda_u = lambda_u
        self.view = view
        check_bounds(self, alpha=(0, 1), nu=(0, 1), memory_size=(1, 100_000), update_every=(1, math.inf))
        check_bounds(self, lambda_t=(0, math.inf), lambda_u=(0, math.inf))
        layers = replace_batch_norms(self.student, alpha)
        self.require_trainable(layers)
        self.teacher = frozen_copy(self.student)
        self.memory = Memory(memory_size, lambda_t=lambda_t, lambda_u=lambda_u).to(
            next(self.student.parameters()).device
        )
        self.begin(p for layer in layers for p in (layer.weight, layer.bias) if isinstance(p, nn.Parameter))

    def adapt(self, x: Tensor) -> Learning:
        """Predict with the teacher, offer every sample to the memory, and learn every ``update_every`` images."""
        self.memory.refuse_other_size(x)
        with torch.no_grad():
            logits = self.teacher(x)
        if logits.shape[1] < 2:
            raise TooFewClasses(
                f"RoTTA divides its memory among classes and needs at least 2; {type(self.student.model).__name__} "
                "has 1. Use another method, or give the second class a logit of 0."
            )
        p = logits.softmax(1)
        self.require_finite(p.sum())
        yield logits
        labels, uncertainty = p.argmax(1).tolist(), -(p * (p + 1e-6).log()).sum(1)
        losses = []
        for image, label, u in zip(x, labels, uncertainty.tolist(), strict=True):
            self.memory.offer(image, label, u, classes=p.shape[1])
            if int(self.memory.offers) % self.update_every == 0:
                losses.append(self.learn_from_memory())
        return Step(logits, losses[-1] if losses else None, {"updates": float(len(losses))})

    def learn_from_memory(self) -> float:
        """Eqs. 9 and 10: train the student on a view to agree with the teacher; recent samples weigh more."""
        images, age = self.memory.content()
        with updating(self.student, self.teacher):
            with torch.no_grad():
                target = self.teacher(images)
            logits = self.student(self.view(images, self.generator))
            timeliness = (-age).exp() / (1 + (-age).exp())
            loss = (cross_entropy(logits, target) * timeliness.to(logits)).mean()
            self.descend(loss)
        ema_(self.teacher, self.student, 1 - self.nu)
        return loss.item()
