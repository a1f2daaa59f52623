"""RMT: a robust mean teacher with symmetric cross-entropy, and contrastive learning towards source prototypes.

Döbler et al., "Robust mean teacher for continual and gradual test-time adaptation", CVPR 2023. RMT* takes the
prototypes from the classifier's weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, FromSource, Learning, Step
from ctta.augment import AnyView, View
from ctta.errors import ParameterError
from ctta.functional import contrastive, nearest_prototype, symmetric_cross_entropy
from ctta.norms import use_batch_statistics, weights_and_biases
from ctta.options import SharedOptions, check_bounds
from ctta.projection import Projection, projected, projection_of
from ctta.prototypes import images_and_labels, initial_prototypes, prototypes_from_source
from ctta.recipes import MLP_EXCEPT_DOMAINNET, per_dataset
from ctta.registry import register
from ctta.teacher import ema_, frozen_copy
from ctta.two_views import view_pass


@register
class RMT(Adapter):
    """Train the student to agree with a slow teacher, and pull its features towards class prototypes.

    The whole student learns, on the batch and on one augmented view, by a symmetric cross-entropy with the teacher,
    which the paper prefers to the plain one because of its gradients. A contrastive loss pulls the features of both
    views towards the nearest class prototype. Optionally RMT warms up on source images and replays some of them. The
    prediction is the sum of the student's and the teacher's logits.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: Momentum of the teacher.
        prototypes: Class means of source features (C, d), from `prototypes_from_source`. If they are left out, the rows
            of the classifier's weight are used, which is RMT*.
        tau: Temperature of the contrastive loss.
        lambda_cl: Weight of the contrastive loss. Zero leaves pure self-training.
        source: A sequence of (images, labels) batches for ``warm_up`` and replay, used in order and repeatedly.
        lambda_src: Weight of the loss on replayed source batches.
        projection: What the features pass through before the contrastive loss: "mlp", a module, or None for nothing.
        view: The augmentation, a function of images and generator.
        recompute: Discard the activations of the augmented view and compute them again for its gradients. This takes
            little more memory than training on one batch instead of two (with replay, two instead of three), for one
            more forward pass. See docs/speed.md.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.RMT(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "parameters named weight or bias"
    passes = (3, 2)
    answers_with = ("student", "teacher")
    logits_are = "the sum of two networks' logits, twice as large as those of one"
    from_source = FromSource(("prototypes",), prototypes_from_source)
    recipes = per_dataset(sgd_lr=0.01, projection=MLP_EXCEPT_DOMAINNET)

    p_0: Tensor
    replayed: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: float = 0.999,
        prototypes: Tensor | None = None,
        tau: float = 0.1,
        lambda_cl: float = 1.0,
        source: Sequence[Any] | None = None,
        lambda_src: float = 0.0,
        projection: Projection = "mlp",
        view: AnyView = View(),  # noqa: B008, a frozen value
        recompute: bool = False,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.alpha = alpha
        self.prototypes = prototypes
        self.tau = tau
        self.lambda_cl = lambda_cl
        self.source = source
        self.lambda_src = lambda_src
        self.view = view
        self.recompute = recompute
        check_bounds(self, alpha=(0, 1), tau=(1e-6, math.inf), lambda_cl=(0, math.inf), lambda_src=(0, math.inf))
        if lambda_src > 0 and not source:
            raise ParameterError(
                f"The 'lambda_src' parameter of RMT is {lambda_src}, but there is no 'source' to replay."
            )
        self.source_free = prototypes is None and source is None
        use_batch_statistics(self.student)
        self.teacher = frozen_copy(self.student)
        self.register_buffer("p_0", initial_prototypes(prototypes, self.student))
        self.register_buffer("replayed", torch.zeros((), dtype=torch.long, device=self.p_0.device))
        self.projection, self.project = projection_of(projection, self.student, seed=self.seed)
        self.begin([*weights_and_biases(self.student), *self.project.parameters()])
        self.passes = (3 + recompute, 2) if lambda_src == 0 else (4 + recompute, 3)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step on the self-training, contrastive and, if requested, replay losses."""
        target = self.teacher(x)  # frozen: no gradient
        augmented = view_pass(self.student, lambda: self.view(x, self.generator), recompute=self.recompute)
        logits, g = self.student.with_features(x)
        yield self.combine(logits.detach(), target)
        logits_aug, g_aug = augmented()
        _, nearest = nearest_prototype(g.detach(), self.p_0)
        loss_st = 0.5 * (self.consistency(logits, target) + self.consistency(logits_aug, target))  # Eq. 3
        loss_cl = contrastive(projected(self.project, self.p_0[nearest], g, g_aug), tau=self.tau)  # Eq. 4
        loss = loss_st + self.lambda_cl * loss_cl
        if self.lambda_src > 0:
            x_src, y_src = self.next_source_batch()
            loss = loss + self.lambda_src * F.cross_entropy(self.student(x_src), y_src)
        self.descend(loss)
        ema_(self.teacher, self.student, self.alpha)
        return Step(
            self.combine(logits.detach(), target), loss.item(), {"loss_st": loss_st.item(), "loss_cl": loss_cl.item()}
        )

    @staticmethod
    def combine(*logits: Tensor) -> Tensor:
        """Add the logits of student and teacher, as published; the argmax is that of their mean."""
        student, teacher = logits
        return student + teacher

    def consistency(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the symmetric cross-entropy, one half per direction (Eq. 2), averaged over the batch.

        Args:
            logits: The student's logits (N, C).
            target: The teacher's logits (N, C).
        """
        return 0.5 * symmetric_cross_entropy(logits, target).mean()

    def warm_up(self, steps: int) -> None:
        """Train on the ``source`` batches with a growing learning rate, before the stream starts.

        A later reset returns to the state after the warm-up.

        Args:
            steps: How many batches to train on.
        """
        with self._lock, torch.enable_grad():
            self._all_or_nothing(lambda: self._warm_up(steps))

    def _warm_up(self, steps: int) -> None:
        self.keep_for_undo()
        for i in range(steps):
            with self.scaled_lr((i + 1) / steps):
                self.attempt(self.warm_up_step)
        self.remember()

    def warm_up_step(self) -> None:
        """Take one self-training step on a source batch, without the augmented view and the contrastive loss."""
        x, _ = self.next_source_batch()
        target = self.teacher(x)
        self.descend(self.consistency(self.student(x), target))
        ema_(self.teacher, self.student, self.alpha)

    def next_source_batch(self) -> tuple[Tensor, Tensor]:
        """Return the next batch of source images and labels."""
        if not self.source:
            raise ParameterError("RMT needs 'source', a sequence of (images, labels) batches, to warm up or replay.")
        batch = self.source[int(self.replayed) % len(self.source)]
        self.replayed += 1
        x, y = images_and_labels(batch, len(self.p_0))
        return x.to(self.p_0).to(memory_format=self._layout), y.to(self.p_0.device)
