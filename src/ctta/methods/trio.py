"""Trio: a mean teacher in which all three forward passes of a step take part in the prediction.

This method is this project's own. It combines DMSE's teacher, prototypes and losses with changes that cost no further
pass. The teacher looks at the mirrored batch, the augmented view is mild enough to predict with, and batch norms blend
the statistics of batch and source according to the shift they see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, FromSource, Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import class_means, contrastive, entropy, nearest_prototype, symmetric_cross_entropy
from ctta.norms import batch_norms, norm_affine, use_batch_statistics
from ctta.options import SharedOptions, check_bounds, with_defaults
from ctta.projection import Projection, projected, projection_of
from ctta.prototypes import initial_prototypes, prototypes_from_source
from ctta.recipes import MLP_EXCEPT_DOMAINNET, per_dataset
from ctta.registry import register
from ctta.teacher import ema_, frozen_copy
from ctta.two_views import view_pass

#: A view without colour jitter and noise.
GEOMETRIC = View(brightness=(1, 1), contrast=(1, 1), saturation=(1, 1), hue=(0, 0), gamma=(1, 1), noise=0.0)


@register
class Trio(Adapter):
    """Predict with the student, the teacher on the mirrored batch, and the student on a view; then learn as DMSE does.

    A step takes the passes of `DMSE`, but the prediction is the mean of all three: the student on the batch, the
    teacher on the mirrored batch and the student on an augmented view without colour jitter. The student learns to
    agree with the teacher on the batch and on the view, and a contrastive loss pulls the features of both towards the
    prototype of the nearest class, which starts as a row of the classifier's weight and moves to the features of
    confident samples. The teacher follows more slowly the less confident the student is, and is never reset.

    All rates are per image: a batch smaller than ``batch_size`` moves the student and the teacher less, in proportion.

    If a mirror image may belong to another class (digits, letters, traffic signs, left and right hands), set
    ``mirror=False``. The teacher then looks at the batch itself, and the view is not flipped.

    Args:
        model: The source model, or a `Classifier` around it.
        mirror: Whether a mirrored image keeps its class.
        teacher_views: How many versions of each image the teacher looks at: the mirrored one, and further views, whose
            logits are averaged. Each costs one more forward pass.
        learns_from: What the student trains: "all" parameters; only the weights and biases of "norms", which is faster;
            or "auto": all parameters of networks with batch norm, and the norms of those with other norm layers, which
            become worse than their source if everything learns.
        alpha_min: The momentum of the teacher if the student is certain. It grows to 1 with the student's entropy.
        gamma: The largest distance from the nearest prototype at which a sample moves it.
        tau: Temperature of the contrastive loss.
        lambda_cl: Weight of the contrastive loss.
        batch_size: The number of images that the learning rate and ``alpha_min`` are meant for.
        projection: What the features pass through before the contrastive loss: "mlp", a module, or None for nothing.
        prototypes: The initial prototypes (C, d). If they are left out, the rows of the classifier's weight are used.
        view: The augmentation, a function of images and generator: a small shift, rotation, zoom, blur and flip. The
            prediction uses it too, so it should not change the colours much. Without ``mirror``, a `View` never flips.
            None leaves the view out, in the student's part of the prediction and in the losses: the cheaper form, with
            two passes instead of three. Further views of the teacher stay.
        recompute: Discard the activations of the augmented view and compute them again for its gradients. This takes
            little more memory than training on one batch instead of two, for one more forward pass. See docs/speed.md.
        shared: Options that every method takes; see `Adapter`. The default of ``statistics`` is "auto".

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.Trio(bn_cnn())
        >>> step = model.step(torch.rand(8, 3, 16, 16))
        >>> step.logits.shape, 0.99 <= step.log["alpha"] <= 1
        (torch.Size([8, 10]), True)
    """

    trains = "every parameter (of networks with other norm layers than batch norm: only those layers)"
    passes = (3, 2)
    answers_with = ("student", "teacher")
    defaults: ClassVar[SharedOptions] = {"statistics": "auto"}
    from_source = FromSource(("prototypes",), prototypes_from_source)
    recipes = per_dataset(sgd_lr=0.01, projection=MLP_EXCEPT_DOMAINNET, mirror=True)

    p_0: Tensor
    p_t: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        mirror: bool = True,
        teacher_views: int = 1,
        learns_from: Literal["auto", "all", "norms"] = "auto",
        alpha_min: float = 0.99,
        gamma: float = 0.3,
        tau: float = 0.1,
        lambda_cl: float = 2.0,
        batch_size: int = 200,
        projection: Projection = "mlp",
        prototypes: Tensor | None = None,
        view: AnyView | None = GEOMETRIC,
        recompute: bool = False,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, shared))
        self.mirror = mirror
        self.teacher_views = teacher_views
        self.learns_from = learns_from
        self.alpha_min = alpha_min
        self.gamma = gamma
        self.tau = tau
        self.lambda_cl = lambda_cl
        self.batch_size = batch_size
        self.prototypes = prototypes
        self.view = view
        self.recompute = recompute
        check_bounds(self, alpha_min=(0, 1), gamma=(0, 1), tau=(1e-6, math.inf), lambda_cl=(0, math.inf))
        check_bounds(self, teacher_views=(1, 10_000), batch_size=(1, math.inf))
        self.source_free = prototypes is None
        self.mirrored = ("teacher",) if mirror else ()
        use_batch_statistics(self.student)
        self.teacher = frozen_copy(self.student)
        p_0 = initial_prototypes(prototypes, self.student)
        self.register_buffer("p_0", p_0)
        self.register_buffer("p_t", p_0.clone())
        self.projection, self.project = projection_of(projection, self.student, seed=self.seed)
        norms = norm_affine(self.student)
        only_norms = learns_from == "norms" or (learns_from == "auto" and norms and not batch_norms(self.student))
        learning = norms if only_norms else list(self.student.parameters())
        self.require_trainable(learning)
        self.begin([*learning, *self.project.parameters()])
        inputs = 1 if view is None else 2
        self.passes = (inputs + teacher_views + (recompute and inputs == 2), inputs)

    def adapt(self, x: Tensor) -> Learning:
        """Predict with all three passes, then learn from the agreement of the student with the teacher."""
        target = self.look(x)
        (logits, g), *views = self.student_passes(x)
        prediction = mean_of([logits.detach(), target, *(own.detach() for own, _ in views)])
        yield prediction
        p_t, nearest, confident = self.recalibrate(g.detach())  # DMSE, Eq. 3
        agreement = [symmetric_cross_entropy(own, target) for own in (logits, *(own for own, _ in views))]
        loss_st = mean_of(agreement).mean()  # DMSE, Eqs. 4 and 5
        features = (p_t[nearest], g, *(own for _, own in views))
        loss_cl = contrastive(projected(self.project, *features), tau=self.tau)  # DMSE, Eq. 6
        loss = loss_st + self.lambda_cl * loss_cl
        rate = min(1.0, len(x) / self.batch_size)
        self.descend(loss, rate=rate)
        self.p_t = p_t
        # Differs from DMSE, Eq. 2: entropy as a share of its largest value, so that the teacher moves with any number
        # of classes, and no reset.
        e = entropy(logits.detach()).mean().item() / math.log(max(logits.shape[1], 2))
        alpha = 1 - rate * (1 - self.alpha_min) * (1 - e)
        ema_(self.teacher, self.student, alpha)
        log = {"entropy": e, "alpha": alpha, "confident_share": confident.float().mean().item()}
        log |= {"loss_st": loss_st.item(), "loss_cl": loss_cl.item()}
        return Step(prediction, loss.item(), log)

    @staticmethod
    def combine(*logits: Tensor) -> Tensor:
        """Average the student and the teacher: the prediction without a random view, as frozen adapters make it.

        Args:
            logits: The student's logits, and the teacher's on the mirrored batch.
        """
        student, teacher = logits
        return 0.5 * (student + teacher)

    def answer(self, x: Tensor) -> Tensor:
        """Predict with all three passes.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        target = self.look(x)
        views = [] if self.view is None else [self.augment(x)]
        return mean_of([self.student(x), target, *map(self.student, views)])

    def student_passes(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the student's logits and features: of the batch, and of the view if there is one.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        if self.view is None:
            return [self.student.with_features(x)]
        augmented = view_pass(self.student, lambda: self.augment(x), recompute=self.recompute)
        return [self.student.with_features(x), augmented()]

    @torch.no_grad()
    def look(self, x: Tensor) -> Tensor:
        """Return the teacher's logits: on the mirrored batch, averaged with those on further views if there are any.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        logits: Tensor = self.teacher(x.flip(-1) if self.mirror else x)
        for _ in range(self.teacher_views - 1):
            logits = logits + self.teacher(self.augment(x))
        return logits / self.teacher_views

    def augment(self, x: Tensor) -> Tensor:
        """Return a random view of the batch.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        view = GEOMETRIC if self.view is None else self.view
        if isinstance(view, View) and not self.mirror:
            view = replace(view, flip=False)
        return view(x, self.generator)

    @torch.no_grad()
    def recalibrate(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the prototypes moved to the confident samples, the class of every sample, and which are confident.

        Args:
            g: Features (N, d).
        """
        dist, nearest = nearest_prototype(g, self.p_0)
        confident = dist < self.gamma
        means, counts = class_means(g[confident], nearest[confident], len(self.p_0))
        return torch.where((counts > 0).unsqueeze(1), means, self.p_t), nearest, confident


def mean_of(values: Sequence[Tensor]) -> Tensor:
    """Return the mean of tensors of one shape.

    Args:
        values: The tensors.
    """
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / len(values)
