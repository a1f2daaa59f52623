"""T3A: replace the head by class centroids of the features seen so far, without gradients.

Iwasawa and Matsuo, "Test-time classifier adjustment module for model-agnostic domain generalization", NeurIPS 2021.
"""

from __future__ import annotations

import copy
import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.classifier import Classifier
from ctta.freeze import Frozen
from ctta.functional import entropy
from ctta.norms import use_batch_statistics
from ctta.options import SharedOptions, StateOptions, check_bounds, with_defaults
from ctta.recipes import without_optimizer
from ctta.registry import register


@register
class T3A(Adapter):
    """Replace the head by centroids of the most certain features of each class; predict after using the batch.

    T3A collects features, each with the class and entropy that the source head gives it, beginning with the rows of the
    head's own weight. For each class it keeps the ``filter_k`` features with the lowest entropy. The sum of their
    directions, scaled to length 1, is the centroid, and the logit of a class is the product of feature and centroid.
    The network itself never changes.

    A batch is already among the supports when its predictions are made, so ``step`` predicts after using the batch.
    ``predict`` uses the centroids as they are.

    Args:
        model: The source model, or a `Classifier` around it.
        filter_k: How many features to keep per class; -1 keeps all, and then memory grows with the stream.
        options: ``seed``, ``reset_every``, ``window``, ``precision``, ``invalid`` and ``statistics``; see `Adapter`. As
            published, the statistics are those of the source.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.T3A(bn_cnn(), filter_k=5)
        >>> model(torch.rand(8, 3, 16, 16)).shape
        torch.Size([8, 10])
    """

    learns = False
    predicts_first = False
    passes = (1, 0)
    logits_are = "products of the features with directions of length 1, on another scale than the head's"
    defaults: ClassVar[SharedOptions] = {"statistics": "source"}
    recipes = without_optimizer(filter_k={"cifar10-c": 100, "cifar100-c": 20, "imagenet-c": 20, "domainnet-126": 100})

    supports: Tensor
    labels: Tensor
    entropies: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        filter_k: int = 20,
        **options: Unpack[StateOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, options))
        self.filter_k = filter_k
        if filter_k != -1:
            check_bounds(self, filter_k=(1, math.inf))
        use_batch_statistics(self.student)
        rows = self.student.weight
        bias = self.student.head.bias
        logits = F.linear(rows, rows, bias.detach() if isinstance(bias, Tensor) else None)
        for name in ("supports", "labels", "entropies"):
            self.register_buffer(name, None)  # of any size
        # A row is labelled by the head like any feature, and may get the label of another class.
        self.supports = rows.clone()
        self.labels = logits.argmax(1)
        self.entropies = entropy(logits)
        self.begin(())

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Learning:
        """Add the batch to the supports, filter them, and predict with the new centroids."""
        logits, g = self.student.with_features(x)
        self.require_finite(logits.sum() + g.sum())
        supports = torch.cat([self.supports, g])
        labels = torch.cat([self.labels, logits.argmax(1)])
        entropies = torch.cat([self.entropies, entropy(logits)])
        keep = self.selected(labels, entropies)
        self.supports, self.labels, self.entropies = supports[keep], labels[keep], entropies[keep]
        adjusted = F.linear(g, self.centroids())
        yield adjusted
        return Step(adjusted, log={"supports": float(len(keep))})

    def answer(self, x: Tensor) -> Tensor:
        """Predict with the centroids as they are."""
        return F.linear(self.student.with_features(x)[1], self.centroids())

    def selected(self, labels: Tensor, entropies: Tensor) -> Tensor:
        """Return which supports to keep, class by class, the most certain first.

        Args:
            labels: Their classes.
            entropies: Their entropies.
        """
        if self.filter_k == -1:
            # Differs from the authors' code, where -1 drops the least certain support of every class at every batch.
            return torch.arange(len(labels), device=labels.device)
        order = entropies.argsort(stable=True)
        order = order[labels[order].argsort(stable=True)]
        counts = torch.bincount(labels, minlength=self.student.num_classes)
        first = (counts.cumsum(0) - counts)[labels[order]]
        rank = torch.arange(len(order), device=order.device) - first
        return order[rank < self.filter_k]

    def centroids(self) -> Tensor:
        """Return the direction of each class (C, d), zero for a class without supports."""
        sums = self.supports.new_zeros(self.student.num_classes, self.supports.shape[1])
        return F.normalize(sums.index_add_(0, self.labels, F.normalize(self.supports)))

    def freeze(self) -> Frozen:
        """Return a plain module that predicts as this adapter does now: the network with the centroids as its head."""
        with self._lock:
            network: Classifier = copy.deepcopy(self.student)
            weight = self.centroids()
            classes, size = weight.shape
            head: nn.Linear | nn.Conv2d = nn.Linear(size, classes, bias=False, device="meta")
            if isinstance(network.head, nn.Conv2d):
                head = nn.Conv2d(size, classes, 1, bias=False, device="meta")
            head.weight = nn.Parameter(weight.view(head.weight.shape))
            place, _, name = str(network.head_name).rpartition(".")
            setattr(network.model.get_submodule(place), name, head)
            return Frozen([network], self.combine)
