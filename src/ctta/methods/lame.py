"""LAME: correct the predictions of a batch so that images with similar features get similar predictions.

Boudiaf et al., "Parameter-free online test-time adaptation", CVPR 2022.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Step
from ctta.options import AnswerOptions, check_bounds
from ctta.recipes import without_optimizer
from ctta.registry import register


@register
class LAME(Adapter):
    """Pull the predictions of similar images together, without changing the model; predict after using the batch.

    No parameter changes and nothing is kept from one batch to the next. LAME looks for an assignment of classes that is
    close to the model's predictions and similar for images with similar features. It helps if images of one class
    arrive together; on streams with mixed classes it usually hurts.

    The prediction for an image depends on the whole batch, so LAME predicts after using the batch. Its logits are
    log-probabilities: their softmax is the assignment Z of the paper.

    Args:
        model: The source model, or a `Classifier` around it.
        affinity: How similarity is measured: "knn", each image to its nearest neighbours, which is the authors' choice;
            "rbf", by a Gaussian of the distance between features; or "linear", by the cosine.
        k: How many neighbours "knn" uses. For "rbf" the width of the Gaussian is the mean distance to the k-th nearest
            image, where the image itself counts as the first. It has no effect on "linear".
        symmetric: Average the affinity of a pair over both directions. It has an effect only on "knn".
        options: ``window``, ``precision`` and ``invalid``; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.LAME(bn_cnn(), affinity="rbf")
        >>> logits = model(torch.rand(8, 3, 16, 16))
        >>> torch.allclose(logits.exp().sum(1), torch.ones(8))
        True
    """

    learns = False
    uses_batch_statistics = False
    predicts_first = False
    predicts_batch_together = True
    passes = (1, 0)
    logits_are = "log-probabilities that agreement with the neighbours in the batch has sharpened"
    recipes = without_optimizer(affinity="rbf", k=5)

    def __init__(
        self,
        model: nn.Module,
        *,
        affinity: Literal["knn", "rbf", "linear"] = "knn",
        k: int = 5,
        symmetric: bool = False,
        **options: Unpack[AnswerOptions],
    ) -> None:
        super().__init__(model, **options)
        self.affinity = affinity
        self.k = k
        self.symmetric = symmetric
        check_bounds(self, k=(1, math.inf))
        self.begin(())

    def adapt(self, x: Tensor) -> Step:
        """Predict for the batch as a whole."""
        return Step(self.answer(x))

    @torch.no_grad()
    def answer(self, x: Tensor) -> Tensor:
        """Return the logarithm of the corrected predictions."""
        logits, g = self.student.with_features(x)
        return assign(logits, self.affinities(F.normalize(g)))

    def affinities(self, g: Tensor) -> Tensor:
        """Return the affinity w_ij of every pair of images (N, N).

        Args:
            g: Features (N, d) of length 1.
        """
        n = len(g)
        if self.affinity == "linear":
            return g @ g.mT
        # Not by a matrix product, whose rounding errors would swamp small distances.
        distance = torch.cdist(g, g, compute_mode="donot_use_mm_for_euclid_dist")
        if self.affinity == "rbf":
            width = distance.kthvalue(min(self.k, n)).values.mean().clamp(min=torch.finfo(g.dtype).tiny)
            return (-0.5 * (distance / width) ** 2).exp()
        neighbours = distance.fill_diagonal_(math.inf).topk(min(self.k, n - 1), largest=False).indices
        w = torch.zeros_like(distance).scatter_(1, neighbours, 1.0)
        return 0.5 * (w + w.mT) if self.symmetric else w


def assign(logits: Tensor, w: Tensor, *, most: int = 100, tolerance: float = 1e-8) -> Tensor:
    """Minimise E(Z) = sum_i KL(z_i, p_i) - sum_ij w_ij z_i z_j by the concave-convex procedure; return log Z (N, C).

    Args:
        logits: Logits (N, C) of p.
        w: Affinities (N, N).
        most: The maximum number of iterations.
        tolerance: Stop if the relative change of E is at most this.
    """
    log_p = (logits.softmax(1) + 1e-10).log()
    log_z, last = log_p.log_softmax(1), math.inf
    for i in range(most):
        pull = w @ log_z.exp()
        log_z = (log_p + pull).log_softmax(1)
        z = log_z.exp()
        energy = (z * (log_z.clamp(min=math.log(1e-20)) - log_p - pull)).sum().item()
        if i > 1 and abs(energy - last) <= tolerance * abs(last):
            break
        last = energy
    return log_z
