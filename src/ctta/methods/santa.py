"""SANTA: align with a frozen source anchor and with its target-corrected prototypes.

Chakrabarty et al., "SANTA: Source anchoring network and target alignment for continual test time adaptation",
TMLR 2023. SANTA* takes the prototypes from the classifier's weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import contrastive, cross_entropy, nearest_prototype
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions, check_bounds
from ctta.pair import view_pass
from ctta.projection import Projection, projection_of
from ctta.prototypes import initial_prototypes
from ctta.recipes import MLP_EXCEPT_DOMAINNET, per_dataset
from ctta.registry import register
from ctta.teacher import frozen_copy


@register
class SANTA(Adapter):
    """Source anchoring and target alignment on the norm layers; ``prototypes`` None is SANTA*, source-free.

    ``recompute`` saves nearly half the memory, for one more forward pass.
    """

    trains = "the weights and biases of normalisation layers"
    passes = (3, 2)
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
        self.prototypes, self.tau, self.lambda_cl, self.view = prototypes, tau, lambda_cl, view
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
        """One step of anchoring and alignment."""
        anchor = self.anchor(x)  # frozen: no gradient
        augmented = view_pass(self.student, lambda: self.view(x, self.generator), recompute=self.recompute)
        logits, g = self.student.with_features(x)
        yield logits.detach()
        logits_aug, g_aug = augmented()
        _, nearest = nearest_prototype(g.detach(), self.p_0)
        # The adapting model gives the weights and the anchor sits in the logarithm: a pull to the anchor's own answer.
        loss_sa = 0.5 * (cross_entropy(anchor, logits) + cross_entropy(anchor, logits_aug)).mean()
        loss_ta = contrastive(self.project(torch.stack([self.p_0[nearest], g, g_aug])), tau=self.tau)
        loss = loss_sa + self.lambda_cl * loss_ta
        self.descend(loss)
        return Step(logits.detach(), loss.item(), {"loss_sa": loss_sa.item(), "loss_ta": loss_ta.item()})
