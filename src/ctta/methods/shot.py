"""SHOT: certain and diverse predictions, with pseudo-labels from clusters of the features.

Liang et al., "Do we really need to access the source data? Source hypothesis transfer for unsupervised domain
adaptation", ICML 2020. This is the online form: one step per batch, pseudo-labels from the batch itself.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.functional import entropy
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions, check_bounds, with_defaults
from ctta.recipes import per_dataset
from ctta.registry import register

_EPS = 1e-5


@register
class SHOT(Adapter):
    """Make each prediction certain and all together diverse, and learn from pseudo-labels of feature clusters.

    Information maximisation (SHOT-IM) lowers the entropy of every prediction and raises that of their mean, which keeps
    the predictions from collapsing into one class. The pseudo-labels come from two rounds of nearest centroids among
    the features of the batch. The head is never trained.

    Args:
        model: The source model, or a `Classifier` around it.
        beta: Weight of the pseudo-labels. Zero is SHOT-IM.
        labels: Where pseudo-labels come from: "clusters" of the features, or "confident" predictions, as in the
            benchmark ttab.
        threshold: The probability above which a prediction is confident; it has an effect only with "confident".
        layers: What is trained: the "norm" layers, or "all" parameters but the head's, as in ttab.
        eps: Added to probabilities inside logarithms; fiveai/LAME has 1e-10. 0 is the exact entropy of each image, and
            1e-5 for their mean, as in ttab.
        shared: Options that every method takes; see `Adapter`. ``optimizer`` is "sgd" here, without nesterov, and
            ``lr`` is 0.01.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.SHOT(bn_cnn(), beta=0.0)  # SHOT-IM
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers"
    passes = (1, 1)
    defaults: ClassVar[SharedOptions] = {"optimizer": "sgd", "lr": 0.01, "nesterov": False}
    recipes = per_dataset(optimizer="sgd", lr=0.01)

    def __init__(
        self,
        model: nn.Module,
        *,
        beta: float = 0.3,
        labels: Literal["clusters", "confident"] = "clusters",
        threshold: float = 0.9,
        layers: Literal["norm", "all"] = "norm",
        eps: float = 1e-5,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, shared))
        self.beta = beta
        self.labels = labels
        self.threshold = threshold
        self.layers = layers
        self.eps = eps
        check_bounds(self, beta=(0, math.inf), threshold=(0, 1), eps=(0, 1))
        use_batch_statistics(self.student)
        head = {id(p) for p in self.student.head.parameters()}
        # Differs from the authors' code: every kind of norm layer learns, so that networks without batch norm work too.
        parameters = norm_affine(self.student) if layers == "norm" else self.student.parameters()
        self.begin(p for p in parameters if id(p) not in head)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step on information maximisation and pseudo-labels."""
        logits, g = self.student.with_features(x)
        yield logits.detach()
        loss = self.information(logits)
        log = {"entropy": entropy(logits.detach()).mean().item()}
        if self.beta:
            label, keep = self.pseudo_labels(logits.detach(), g.detach())
            log["kept"] = float(keep.sum())
            if keep.any():
                loss = loss + self.beta * F.cross_entropy(logits[keep], label[keep])
        self.descend(loss)
        return Step(logits.detach(), loss.item(), log)

    def information(self, logits: Tensor) -> Tensor:
        """Return the mean entropy of the predictions minus the entropy of their mean.

        Args:
            logits: Logits (N, C).
        """
        p = logits.softmax(1)
        mean = p.mean(0)
        h = -(p * (p + self.eps).log()).sum(1) if self.eps else entropy(logits)
        return h.mean() + (mean * (mean + (self.eps or _EPS)).log()).sum()

    def pseudo_labels(self, logits: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return a label for every image, and which of the images to learn from.

        Args:
            logits: Logits (N, C).
            g: Features (N, d).
        """
        p = logits.softmax(1)
        if self.labels == "clusters":
            return cluster_labels(g, p), torch.ones(len(g), dtype=torch.bool, device=g.device)
        confidence, label = p.max(1)
        return label, confidence > self.threshold


def cluster_labels(g: Tensor, p: Tensor) -> Tensor:
    """Assign features to the nearest of C centroids: weighted by the predictions, then by the first assignment (N,).

    Args:
        g: Features (N, d).
        p: Predictions (N, C).
    """
    g = F.normalize(g)
    label = _nearest(g, p)
    return _nearest(g, F.one_hot(label, p.shape[1]).to(g))


def _nearest(g: Tensor, weight: Tensor) -> Tensor:
    # A class without weight has its centroid at the origin and stays a candidate, as published.
    centroids = weight.mT @ g / (1e-8 + weight.sum(0)).unsqueeze(1)
    return torch.cdist(g, centroids, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
