"""SANTA: align with a frozen copy of the source and with class prototypes.

Chakrabarty et al., "SANTA: Source anchoring network and target alignment for continual test time adaptation",
TMLR 2023. SANTA* takes the prototypes from the classifier's weights.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, FromSource, Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import contrastive, cross_entropy, nearest_prototype
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions, check_bounds
from ctta.projection import Projection, projected, projection_of
from ctta.prototypes import initial_prototypes, prototypes_from_source
from ctta.recipes import MLP_EXCEPT_DOMAINNET, per_dataset
from ctta.registry import register
from ctta.teacher import frozen_copy
from ctta.two_views import view_pass


@register
class SANTA(Adapter):
    """Train the norm layers to agree with a frozen copy of the source, and align features with class prototypes.

    The frozen copy (the anchor) normalises with the same batch; the paper calls it the target-corrected source. The
    contrastive loss of `RMT` aligns the features with the nearest class prototype. There is no teacher, no moving
    average and no reset.

    Args:
        model: The source model, or a `Classifier` around it.
        prototypes: Class means of source features (C, d), from `prototypes_from_source`. If they are left out, the rows
            of the classifier's weight are used, which is SANTA*.
        tau: Temperature of the contrastive loss.
        lambda_cl: Weight of the contrastive loss. Lower it if batches hold few images: the loss needs negatives.
        projection: What the features pass through before the contrastive loss: "mlp", a module, or None for nothing.
        view: The augmentation, a function of images and generator.
        recompute: Discard the activations of the augmented view and compute them again for its gradients. This takes
            little more memory than training on one batch instead of two, for one more forward pass. See docs/speed.md.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.SANTA(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers"
    passes = (3, 2)
    from_source = FromSource(("prototypes",), prototypes_from_source)
    recipes = per_dataset(sgd_lr=0.01, projection=MLP_EXCEPT_DOMAINNET)

    p_0: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        prototypes: Tensor | None = None,
        tau: float = 0.1,
        lambda_cl: float = 1.0,
        projection: Projection = "mlp",
        view: AnyView = View(),  # noqa: B008, a frozen value
        recompute: bool = False,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.prototypes = prototypes
        self.tau = tau
        self.lambda_cl = lambda_cl
        self.view = view
        self.recompute = recompute
        check_bounds(self, tau=(1e-6, math.inf), lambda_cl=(0, math.inf))
        self.source_free = prototypes is None
        use_batch_statistics(self.student)
        affine = norm_affine(self.student)
        self.require_trainable(affine)
        self.anchor = frozen_copy(self.student)
        self.register_buffer("p_0", initial_prototypes(prototypes, self.student))
        self.projection, self.project = projection_of(projection, self.student, seed=self.seed)
        self.begin([*affine, *self.project.parameters()])
        self.passes = (3 + recompute, 2)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step on the anchoring and alignment losses."""
        anchor = self.anchor(x)  # frozen: no gradient
        augmented = view_pass(self.student, lambda: self.view(x, self.generator), recompute=self.recompute)
        logits, g = self.student.with_features(x)
        yield logits.detach()
        logits_aug, g_aug = augmented()
        _, nearest = nearest_prototype(g.detach(), self.p_0)
        # The student gives the weights and the anchor is in the logarithm: a pull towards the anchor's most likely
        # class.
        loss_sa = 0.5 * (cross_entropy(anchor, logits) + cross_entropy(anchor, logits_aug)).mean()
        loss_ta = contrastive(projected(self.project, self.p_0[nearest], g, g_aug), tau=self.tau)
        loss = loss_sa + self.lambda_cl * loss_ta
        self.descend(loss)
        return Step(logits.detach(), loss.item(), {"loss_sa": loss_sa.item(), "loss_ta": loss_ta.item()})
