"""OBAO: a mean teacher with a buffer of confident images, and class relations that stay those of the source.

Zhu et al., "Reshaping the online data buffering and organizing mechanism for continual test-time adaptation",
ECCV 2024.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import FromSource, Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import class_means, entropy, symmetric_cross_entropy
from ctta.methods._parts.image_memory import EntropyBuffer
from ctta.methods._parts.restore import RestoresRandomly
from ctta.norms import source_statistics_where_single, use_batch_statistics, weights_and_biases
from ctta.options import SharedOptions, check_bounds
from ctta.prototypes import initial_prototypes, prototypes_from_source
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import ema_, frozen_copy


@register
class OBAO(RestoresRandomly):
    """Train the student to agree with a slow teacher, and replay confident images so that classes keep their relations.

    OBAO is RMT without its contrastive loss. Images with a confident prediction go to a buffer, from which some are
    replayed with the class that was predicted for them. The cosines between the class means of the replayed features
    are kept close to those of the source. The head is not trained. The prediction is the sum of the student's and the
    teacher's logits. The buffer holds real images, and so do checkpoints.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: Momentum of the teacher.
        prototypes: Class means of source features (C, d), from `prototypes_from_source`, whose relations are kept. If
            they are left out, the rows of the classifier's weight are used, and no source data is needed.
        buffer_size: The number of images held.
        replay: How many of them are replayed at each step.
        e_margin: An image goes to the buffer if its entropy is below this share of ln C.
        lambda_buffer: Weight of the cross-entropy of replayed images.
        lambda_relation: Weight of the loss on class relations.
        relation_loss: How relations are compared: by the "cosine" of the two matrices or their "squared" difference.
        restore_p: The share of weights that are restored to the source at random after each step, as in CoTTA.
        view: The augmentation, a function of images and generator.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.OBAO(bn_cnn(), e_margin=1.0)
        >>> [model.step(torch.rand(8, 3, 16, 16)).log["replayed"] for _ in range(3)]
        [0.0, 8.0, 16.0]
    """

    trains = "parameters named weight or bias, except those of the head"
    # Student, teacher and view; then the replayed images.
    passes = (4, 3)
    answers_with = ("student", "teacher")
    logits_are = "the sum of two networks' logits, twice as large as those of one"
    from_source = FromSource(("prototypes",), prototypes_from_source)
    recipes = per_dataset(
        sgd_lr=0.01,
        buffer_size={"cifar10-c": 1000, "cifar100-c": 200, "imagenet-c": 1000, "domainnet-126": 1000},
        replay={"cifar10-c": 200, "cifar100-c": 200, "imagenet-c": 64, "domainnet-126": 64},
        e_margin={"cifar10-c": 0.1, "cifar100-c": 0.1, "imagenet-c": 0.2, "domainnet-126": 0.2},
        lambda_buffer={"cifar10-c": 1.0, "cifar100-c": 1.0, "imagenet-c": 0.5, "domainnet-126": 0.5},
        lambda_relation={"cifar10-c": 1.0, "cifar100-c": 200.0, "imagenet-c": 1.0, "domainnet-126": 1.0},
    )

    r_0: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: float = 0.999,
        prototypes: Tensor | None = None,
        buffer_size: int = 1000,
        replay: int = 200,
        e_margin: float = 0.1,
        lambda_buffer: float = 1.0,
        lambda_relation: float = 1.0,
        relation_loss: Literal["cosine", "squared"] = "cosine",
        restore_p: float = 0.0,
        view: AnyView = View(),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.alpha = alpha
        self.prototypes = prototypes
        self.buffer_size = buffer_size
        self.replay = replay
        self.e_margin = e_margin
        self.lambda_buffer = lambda_buffer
        self.lambda_relation = lambda_relation
        self.relation_loss = relation_loss
        self.restore_p = restore_p
        self.view = view
        check_bounds(self, alpha=(0, 1), buffer_size=(1, 1_000_000), replay=(1, 1_000_000), e_margin=(0, 1))
        check_bounds(self, lambda_buffer=(0, math.inf), lambda_relation=(0, math.inf), restore_p=(0, 1))
        self.source_free = prototypes is None
        use_batch_statistics(self.student)
        self.teacher = frozen_copy(self.student)
        self.register_buffer("r_0", relations(initial_prototypes(prototypes, self.student)))
        self.buffer = EntropyBuffer(buffer_size).to(self.r_0.device)
        head = {id(p) for p in self.student.head.parameters()}
        self.begin(p for p in weights_and_biases(self.student) if id(p) not in head)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, take one step on the batch and on replayed images, then update buffer and teacher."""
        self.buffer.refuse_other_size(x, "OBAO")
        target = self.teacher(x)  # frozen: no gradient
        logits = self.student(x)
        answer = self.combine(logits.detach(), target)
        yield answer
        logits_aug = self.student(self.view(x, self.generator))
        agreement = symmetric_cross_entropy(logits, target) + symmetric_cross_entropy(logits_aug, target)
        loss = 0.25 * agreement.mean()
        replayed = self.drawn()
        if len(replayed):
            loss = loss + self.replay_loss(replayed)
        self.descend(loss)
        h = entropy(logits.detach())
        sure = h < self.e_margin * math.log(logits.shape[1])
        self.buffer.add(x[sure], answer[sure].argmax(1), h[sure])
        ema_(self.teacher, self.student, self.alpha)
        self.restore_randomly()
        return Step(answer, loss.item(), {"replayed": float(len(replayed)), "buffered": float(len(self.buffer))})

    @staticmethod
    def combine(*logits: Tensor) -> Tensor:
        """Add the logits of student and teacher, as published; the argmax is that of their mean."""
        student, teacher = logits
        return student + teacher

    def drawn(self) -> Tensor:
        """Draw the positions in the buffer to replay; all of them if there are too few."""
        held = len(self.buffer)
        places = torch.arange(held) if held < self.replay else torch.randperm(held, generator=self.generator)
        return places[: self.replay].to(self.r_0.device)

    def replay_loss(self, places: Tensor) -> Tensor:
        """Return the weighted losses on replayed images: their cross-entropy, and the change of class relations.

        Args:
            places: Positions in the buffer, at least one.
        """
        assert self.buffer.images is not None
        images, label = self.buffer.images[places], self.buffer.label[places]
        with source_statistics_where_single(self.student):
            logits, g = self.student.with_features(images.contiguous(memory_format=self._layout))
        means, counts = class_means(g, label, len(self.r_0))
        present = counts > 0
        change = relation_change(self.r_0[present][:, present], relations(means[present]), self.relation_loss)
        return self.lambda_buffer * F.cross_entropy(logits, label) + self.lambda_relation * change


def relations(means: Tensor) -> Tensor:
    """Return the cosines between class means, with ones on the diagonal: (C, C).

    Args:
        means: One feature vector per class (C, d).
    """
    unit = F.normalize(means)
    itself = torch.eye(len(means), dtype=torch.bool, device=means.device)
    return (unit @ unit.mT).masked_fill(itself, 1.0)


def relation_change(source: Tensor, now: Tensor, how: Literal["cosine", "squared"]) -> Tensor:
    """Return how far class relations have moved from those of the source: a scalar.

    Args:
        source: The relations of the source (K, K).
        now: The relations of replayed images (K, K).
        how: "cosine", the negative cosine of the two matrices, or "squared", the mean squared difference.
    """
    if how == "squared":
        return F.mse_loss(now, source)
    # Called a correlation in the paper, but no mean is subtracted.
    return -F.cosine_similarity(source.flatten(), now.flatten(), dim=0)
