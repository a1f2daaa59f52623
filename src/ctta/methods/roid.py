"""ROID: a likelihood-ratio loss weighted by certainty and diversity, weight ensembling and prior correction.

Marsden et al., "Universal test-time adaptation through weight ensembling, diversity weighting, and prior correction",
WACV 2024.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.augment import AnyView, View
from ctta.classifier import Classifier
from ctta.functional import entropy, symmetric_cross_entropy
from ctta.norms import norm_affine, source_statistics_where_single, use_batch_statistics
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register


@register
class ROID(Adapter):
    """Train the norm layers on diverse samples, move weights back towards the source, and correct the class prior.

    The loss is a soft likelihood ratio, whose gradient does not vanish for confident predictions. ROID applies it to
    samples that differ from the mean prediction, weighted by how certain and how different they are. After each step
    the weights move a little back towards the source. The logits are corrected for the mean prediction of the batch.

    Args:
        model: The source model, or a `Classifier` around it.
        momentum_source: The share of the student that is kept when its weights are averaged with the source. At 0.99 a
            drift is halved in about 70 steps.
        momentum_probs: Momentum of the mean prediction.
        temperature: Temperature of the sample weights. Lower values let a few samples dominate.
        batch_size: Divides the loss, whatever the size of the batch. None divides by the size of the current batch, so
            that a small last batch takes a full step.
        view: The augmentation, a function of images and generator. The default is CoTTA's with reflected borders and
            without blur or noise.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.ROID(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers"
    passes = (2, 2)
    logits_are = "multiplied by the share of each class in the batch"
    recipes = per_dataset(batch_size={"cifar10-c": 200, "cifar100-c": 200, "imagenet-c": 64, "domainnet-126": 128})

    p_bar: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        momentum_source: float = 0.99,
        momentum_probs: float = 0.9,
        temperature: float = 1 / 3,
        batch_size: int | None = None,
        view: AnyView = View(border="reflect", blur=None, noise=0.0),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.momentum_source = momentum_source
        self.momentum_probs = momentum_probs
        self.temperature = temperature
        self.batch_size = batch_size
        self.view = view
        check_bounds(self, momentum_source=(0, 1), momentum_probs=(0, 1), temperature=(1e-6, math.inf))
        check_bounds(self, batch_size=(1, math.inf))
        use_batch_statistics(self.student)
        self.register_buffer("p_bar", None)
        self.begin(norm_affine(self.student))

    def adapt(self, x: Tensor) -> Learning:
        """Predict, take one step on the diverse samples, then move a little back towards the source."""
        logits = self.student(x)
        p = logits.detach().softmax(1)
        self.require_finite(p.sum())
        yield self.combine(logits.detach())
        p_bar = torch.full_like(p[0], 1 / p.shape[1]) if self.p_bar is None else self.p_bar
        keep, weight = sample_weights(logits.detach(), p_bar, self.temperature)
        total = weighted_loss(self.student, logits[keep], self.view(x[keep], self.generator), weight)
        loss = total / (self.batch_size or len(x))
        self.descend(loss)
        self.p_bar = self.momentum_probs * p_bar + (1 - self.momentum_probs) * p.mean(0)
        return Step(self.combine(logits.detach()), loss.item(), {"kept": float(keep.sum()), **self.return_to_source()})

    @staticmethod
    def combine(*logits: Tensor) -> Tensor:
        """Correct the student's logits for the mean prediction of the batch."""
        return correct_prior(logits[0])

    @torch.no_grad()
    def return_to_source(self) -> dict[str, float]:
        """Weight ensembling: theta <- m theta + (1 - m) theta_source for trained parameters. Return numbers to log."""
        torch._foreach_lerp_(list[Tensor](self.trained), self.source_of_trained(), 1 - self.momentum_source)
        return {}


def sample_weights(logits: Tensor, p_bar: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return which samples are diverse (N,), and weights that grow with their diversity and certainty (kept,).

    Args:
        logits: Logits (N, C), detached.
        p_bar: The mean prediction so far (C,).
        temperature: Temperature of the weights.
    """
    diverse = _minmax(1 - F.cosine_similarity(p_bar.unsqueeze(0), logits.softmax(1)))
    certain = _minmax(-entropy(logits))
    keep = diverse >= diverse.mean()
    return keep, (diverse * certain / temperature).exp()[keep]


def weighted_loss(student: Classifier, logits: Tensor, view: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted sum of the soft likelihood ratio and the consistency with an augmented view: scalar.

    Args:
        student: The network.
        logits: Logits (N, C). As published, they are not detached as the target of the consistency term.
        view: The augmented images (N, C, H, W), which the network normalises among themselves.
        weight: The weights (N,).
    """
    with source_statistics_where_single(student):
        logits_aug = student(view)
    consistency = 0.5 * symmetric_cross_entropy(logits_aug, logits)
    return (weight * (soft_likelihood_ratio(logits) + consistency)).sum()


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    """Return -sum_c q_c log(q_c / (1 - q_c)) per sample, where q is the softmax clipped at 0.99: (N,).

    Args:
        logits: Logits (N, C).
    """
    q = logits.softmax(1).clamp(0, 0.99)
    return -(q * (q / (1 - q) + 1e-5).log()).sum(1)


def correct_prior(logits: Tensor) -> Tensor:
    """Multiply logits by the smoothed mean prediction of the batch.

    Args:
        logits: Logits (N, C) of one batch.
    """
    n, classes = logits.shape
    prior = logits.softmax(1).mean(0)
    # Not max, because n is symbolic in an export.
    smooth: Tensor = torch.sym_max(1 / n, 1 / classes) / prior.max()  # type: ignore[no-untyped-call]
    return logits * (prior + smooth) / (1 + smooth * classes)


def _minmax(values: Tensor) -> Tensor:
    low, high = values.aminmax()
    # A batch of equal values has no spread to scale by: all become 0.
    return (values - low) / (high - low).clamp(min=torch.finfo(values.dtype).tiny)
