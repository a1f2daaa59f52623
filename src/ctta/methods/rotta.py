"""RoTTA: robust statistics, a category-balanced memory and a timeliness-weighted teacher.

Yuan et al., "Robust test-time adaptation in dynamic scenarios", CVPR 2023.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Step
from ctta.augment import AnyView, View
from ctta.functional import cross_entropy
from ctta.methods._rotta_parts import Memory, replace_batch_norms, updating
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import ema_, frozen_copy


@register
class RoTTA(Adapter):
    """Learns from a memory of timely, certain, class-balanced samples every ``update_every`` images."""

    trains = "the weights and biases of batch norms"
    uses_batch_statistics = False
    # At a batch of `update_every` images: the teacher answers, then teacher and student see the memory.
    passes = (3, 1)
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
        self.alpha, self.nu, self.memory_size, self.update_every = alpha, nu, memory_size, update_every
        self.lambda_t, self.lambda_u, self.view = lambda_t, lambda_u, view
        check_bounds(self, alpha=(0, 1), nu=(0, 1), memory_size=(1, 100_000), update_every=(1, math.inf))
        check_bounds(self, lambda_t=(0, math.inf), lambda_u=(0, math.inf))
        layers = replace_batch_norms(self.student, alpha)
        self.require_trainable(layers)
        self.teacher = frozen_copy(self.student)
        self.memory = Memory(memory_size, lambda_t=lambda_t, lambda_u=lambda_u)
        self.begin(p for layer in layers for p in layer.parameters())

    def adapt(self, x: Tensor) -> Step:
        """The teacher answers; every sample is offered to the memory, which is learnt from now and then."""
        with torch.no_grad():
            logits = self.teacher(x)
        p = logits.softmax(1)
        self.require_finite(p.sum())
        labels, uncertainty = p.argmax(1).tolist(), -(p * (p + 1e-6).log()).sum(1)
        losses = []
        for image, label, u in zip(x, labels, uncertainty.tolist(), strict=True):
            self.memory.offer(image, label, u, classes=p.shape[1])
            if int(self.memory.offers) % self.update_every == 0:
                losses.append(self.learn_from_memory())
        return Step(logits, losses[-1] if losses else None, {"updates": float(len(losses))})

    def answer(self, x: Tensor) -> Tensor:
        """The teacher's answer, with the stored statistics."""
        return self.teacher(x)

    def learn_from_memory(self) -> float:
        """Eqs. 9 and 10: the student on a view follows the teacher, timely samples first."""
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
