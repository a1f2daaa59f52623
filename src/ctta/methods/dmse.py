"""DMSE (Dynamic Momentum and Source Estimation): the student's entropy controls the teacher; prototypes from the head.

Roy, Moulick, Verma, Ghosh, Das, "Source-Free Controlled Adaptation of Teachers for Continual Test-Time Adaptation".
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, FromSource, Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import class_means, contrastive, cross_entropy, entropy, nearest_prototype, symmetric_cross_entropy
from ctta.norms import use_batch_statistics
from ctta.options import SharedOptions, check_bounds
from ctta.projection import Projection, projected, projection_of
from ctta.prototypes import initial_prototypes, prototypes_from_source
from ctta.recipes import MLP_EXCEPT_DOMAINNET, per_dataset
from ctta.registry import register
from ctta.teacher import assign_, ema_, frozen_copy
from ctta.two_views import view_pass


@register
class DMSE(Adapter):
    """Train the student to agree with a controlled teacher, and pull its features towards estimated class prototypes.

    The whole student learns, on the batch and on one augmented view. Two things set DMSE apart from `RMT`. The momentum
    of the teacher depends on the student's entropy (Sec. 3.1): the less confident the student, the less the teacher
    follows it, and if the student becomes too confident, the teacher is reset to the source. And the prototypes need no
    source data (Sec. 3.2): they start as the rows of the classifier's weight and move to the features of confident
    samples. The prediction is the mean of the student's and the teacher's logits.

    The first six arguments are constants of the paper, the same for every dataset. ``alpha`` to ``prototypes`` are the
    switches of its ablations. ``entropy_unit`` to ``contrast_with`` are choices where the paper is silent.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha_min: The smallest momentum of the teacher (Eq. 2).
        beta: How much the momentum grows with each unit of entropy (Eq. 2).
        e_min: The teacher is reset to the source if the student's mean entropy is below this value.
        gamma: The largest distance from the nearest prototype at which a sample moves it (Eq. 3). 0.3 is a cosine of
            0.4; at 0.5 and above, samples that point away from the prototype count too.
        tau: Temperature of the contrastive loss (Eq. 6).
        lambda_cl: Weight of the contrastive loss (Eq. 7).
        alpha: A fixed momentum instead of Eq. 2. 0.999 with ``teacher_reset=False`` is the plain mean teacher.
        recalibrated: Move the prototypes by Eq. 3. If False, they stay p_0.
        centre: Where to look for the nearest class: "static" in p_0, "dynamic" in the prototypes of the previous step.
        teacher_reset: Reset the teacher below ``e_min``.
        projection: What the features pass through before the contrastive loss: "mlp", a module, or None for nothing.
        loss: The consistency loss: "sce", the symmetric cross-entropy of Eq. 4, or "ce", the cross-entropy.
        prototypes: The initial prototypes p_0 (C, d). Those of `prototypes_from_source` make it DMSE^s, which is not
            source-free. If they are left out, the rows of the classifier's weight are used.
        entropy_unit: The unit of the entropy in Eqs. 1 and 2: "nats", or "ln C" for a share of the largest entropy.
        reset_by: What is compared with ``e_min``: the entropy of this "batch", or a moving "average" with momentum 0.9.
        sce_weight: Factor of Eq. 4. 0.5 is that of the RMT code base.
        empty_class: The prototype of a class without a confident sample: "keep" the last one, or return to "p_0".
        contrast_with: The prototype in the contrastive loss: that of the class "assigned" by the centre, or the
            "nearest" one after the move.
        view: The augmentation, a function of images and generator.
        recompute: Discard the activations of the augmented view and compute them again for its gradients. This takes
            little more memory than training on one batch instead of two, for one more forward pass. See docs/speed.md.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.DMSE(bn_cnn())
        >>> step = model.step(torch.rand(8, 3, 16, 16))
        >>> step.logits.shape, 0.99 <= step.log["alpha"] <= 1
        (torch.Size([8, 10]), True)
    """

    passes = (3, 2)
    answers_with = ("student", "teacher")
    from_source = FromSource(("prototypes",), prototypes_from_source)
    recipes = per_dataset(sgd_lr=0.01, projection=MLP_EXCEPT_DOMAINNET)

    p_0: Tensor
    p_t: Tensor
    average_e: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha_min: float = 0.99,
        beta: float = 0.01,
        e_min: float = 0.2,
        gamma: float = 0.3,
        tau: float = 0.1,
        lambda_cl: float = 0.5,
        alpha: float | None = None,
        recalibrated: bool = True,
        centre: Literal["static", "dynamic"] = "static",
        teacher_reset: bool = True,
        projection: Projection = "mlp",
        loss: Literal["sce", "ce"] = "sce",
        prototypes: Tensor | None = None,
        entropy_unit: Literal["nats", "ln C"] = "nats",
        reset_by: Literal["batch", "average"] = "batch",
        sce_weight: float = 1.0,
        empty_class: Literal["keep", "p_0"] = "keep",
        contrast_with: Literal["assigned", "nearest"] = "assigned",
        view: AnyView = View(),  # noqa: B008, a frozen value
        recompute: bool = False,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.alpha_min = alpha_min
        self.beta = beta
        self.e_min = e_min
        self.gamma = gamma
        self.tau = tau
        self.lambda_cl = lambda_cl
        self.alpha = alpha
        self.recalibrated = recalibrated
        self.centre = centre
        self.teacher_reset = teacher_reset
        self.loss = loss
        self.prototypes = prototypes
        self.entropy_unit = entropy_unit
        self.reset_by = reset_by
        self.sce_weight = sce_weight
        self.empty_class = empty_class
        self.contrast_with = contrast_with
        self.view = view
        self.recompute = recompute
        check_bounds(self, alpha_min=(0, 1), alpha=(0, 1), gamma=(0, 1), tau=(1e-6, math.inf), beta=(0, math.inf))
        check_bounds(self, e_min=(0, math.inf), lambda_cl=(0, math.inf), sce_weight=(0, math.inf))
        self.source_free = prototypes is None
        use_batch_statistics(self.student)
        self.teacher = frozen_copy(self.student)
        # Paper silent: p_0 is the raw rows of the source head, bias ignored, as a frozen copy.
        p_0 = initial_prototypes(prototypes, self.student)
        self.register_buffer("p_0", p_0)
        self.register_buffer("p_t", p_0.clone())
        self.register_buffer("average_e", None)
        self.projection, self.project = projection_of(projection, self.student, seed=self.seed)
        # Paper silent: all of the student learns, its classifier included, and the projection; no warm-up, no replay.
        self.begin([*self.student.parameters(), *self.project.parameters()])
        self.passes = (3 + recompute, 2)

    def adapt(self, x: Tensor) -> Learning:
        """Predict and learn. Paper silent: forward passes, prototypes, loss, optimizer, then the teacher."""
        target = self.teacher(x)  # no gradient; first, while the student's activations take no memory yet
        augmented = view_pass(self.student, lambda: self.view(x, self.generator), recompute=self.recompute)
        logits, g = self.student.with_features(x)
        yield self.combine(logits.detach(), target)
        logits_aug, g_aug = augmented()
        # Paper silent: the prototypes move before the loss, which sends no gradient through them.
        p_t, nearest, confident = self.recalibrate(g.detach())  # Eq. 3
        loss_st = 0.5 * (self.consistency(logits, target) + self.consistency(logits_aug, target)).mean()  # Eq. 5
        loss_cl = contrastive(projected(self.project, p_t[nearest], g, g_aug), tau=self.tau)  # Eq. 6
        loss = loss_st + self.lambda_cl * loss_cl  # Eq. 7
        self.descend(loss)
        self.p_t, moved = p_t, (p_t != self.p_t).any(1).sum().item()
        # Paper silent: e is the student's, batch mean, on the prediction just made and not on the augmented view.
        e = entropy(logits.detach()).mean().item()
        alpha, reset = self.control_teacher(e)
        log = {"entropy": e, "alpha": alpha, "teacher_reset": float(reset), "prototypes_moved": moved}
        log |= {"confident_share": confident.float().mean().item()}
        log |= {"loss_st": loss_st.item(), "loss_cl": loss_cl.item()}
        return Step(self.combine(logits.detach(), target), loss.item(), log)

    @staticmethod
    def combine(*logits: Tensor) -> Tensor:
        """Average the student and the teacher. Paper silent: the mean is that of their logits."""
        student, teacher = logits
        return 0.5 * (student + teacher)

    def consistency(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return Eq. 4, or the cross-entropy of the ablation, per sample.

        Args:
            logits: The student's logits (N, C).
            target: The teacher's logits (N, C).
        """
        if self.loss == "ce":
            return cross_entropy(logits, target)
        # Paper silent: as printed, without the factor 1/2 per direction of the RMT code base.
        return self.sce_weight * symmetric_cross_entropy(logits, target)

    @torch.no_grad()
    def recalibrate(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. 3: return the prototypes p_t, the class of every sample, and which samples are confident.

        Args:
            g: Features (N, d).
        """
        dist, nearest = nearest_prototype(g, self.p_0 if self.centre == "static" else self.p_t)
        # Paper silent: gamma filters only this update, strictly, on the original view.
        confident = dist < self.gamma
        if not self.recalibrated:
            return self.p_t, nearest, confident
        means, counts = class_means(g[confident], nearest[confident], len(self.p_0))
        # Paper silent: the batch mean replaces a prototype; a class without a confident sample keeps its last one.
        p_t = torch.where((counts > 0).unsqueeze(1), means, self.p_t if self.empty_class == "keep" else self.p_0)
        # Paper silent: the loss takes the class found against the centre, at its new value p_t.
        return p_t, nearest if self.contrast_with == "assigned" else nearest_prototype(g, p_t)[1], confident

    def control_teacher(self, e: float) -> tuple[float, bool]:
        """Eqs. 1 and 2: update the teacher with momentum alpha, or reset it to the source below e_min.

        Args:
            e: The mean entropy of the student's predictions, in nats.

        Returns:
            The momentum, and whether the teacher was reset.
        """
        # Paper silent: e is in nats; divided by ln C the limit of 1 would never act.
        e = e if self.entropy_unit == "nats" else e / math.log(len(self.p_0))
        alpha = min(self.alpha_min + self.beta * e, 1.0) if self.alpha is None else self.alpha  # Eq. 2
        # Paper silent: the batch's own e is compared with e_min, not a moving average as in SAR.
        average = e if self.average_e is None or self.reset_by == "batch" else 0.9 * self.average_e.item() + 0.1 * e
        reset = self.teacher_reset and average < self.e_min
        self.average_e = None if reset or self.reset_by == "batch" else self.p_0.new_tensor(average)
        if reset:
            # Paper silent: it covers the teacher's parameters only, and replaces this step's average.
            assign_(self.teacher, self.source_of(self.teacher))
        else:
            ema_(self.teacher, self.student, alpha)  # Eq. 1
        return alpha, reset
