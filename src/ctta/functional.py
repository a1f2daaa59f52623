"""The equations, one pure function each. Logits are (N, C), and losses are per sample unless stated otherwise."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -sum_c p_c log p_c with p = softmax(logits), in nats: (N,).

    Args:
        logits: Logits (N, C).

    Example:
        >>> entropy(torch.zeros(1, 2))  # ln 2
        tensor([0.6931])
    """
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def opinion_entropy(logits: Tensor, mass: float | None = None) -> Tensor:
    """H(b_1, ..., b_C, u) with b_c = exp(z_c) / (S + K), u = K / (S + K) and S = sum_c exp(z_c): (N,).

    The entropy of a subjective opinion, the loss of COME. The norm of the logits z is treated as a constant, so that
    the gradient cannot change it.

    Args:
        logits: Logits (N, C).
        mass: The mass K of the uncertainty u; None for the number of classes.

    Example:
        >>> opinion_entropy(torch.zeros(1, 2))  # b = (1/4, 1/4), u = 1/2: ln 2 + ln(2) / 2
        tensor([1.0397])
    """
    norm: Tensor = torch.linalg.vector_norm(logits, dim=1, keepdim=True).clamp(min=torch.finfo(logits.dtype).tiny)
    z = logits / norm * norm.detach()
    # One softmax with ln K as a further logit: the same opinion, without the overflow of exp(z) in float32 above 88.
    uncertain = z.new_full((len(z), 1), math.log(logits.shape[1] if mass is None else mass))
    q = torch.cat([z, uncertain], 1).softmax(1) + 1e-7
    return -(q * q.log()).sum(1)


def generalised_cross_entropy(logits: Tensor, label: Tensor, q: float) -> Tensor:
    """(1 - p_y^q) / q with p = softmax(logits) and label y: (N,).

    Between the cross-entropy (q near 0) and the mean absolute error (q = 1), which is less sensitive to incorrect
    labels.

    Args:
        logits: Logits (N, C).
        label: The labels (N,).
        q: The exponent, above 0.

    Example:
        >>> generalised_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), 1.0)
        tensor([0.5000])
    """
    p = logits.softmax(1).gather(1, label.unsqueeze(1)).squeeze(1)
    return (1 - p**q) / q


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-sum_c q_c log p_c with p = softmax(logits) and q = softmax(target): (N,).

    Args:
        logits: Logits (N, C) of the prediction p.
        target: Logits (N, C) of the target q.
    """
    return -(target.softmax(1) * logits.log_softmax(1)).sum(1)


def symmetric_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """SCE(q, p) = -sum q log p - sum p log q (DMSE Eq. 4): (N,).

    Args:
        logits: Logits (N, C) of the prediction p.
        target: Logits (N, C) of the target q.
    """
    log_p, log_q = logits.log_softmax(1), target.log_softmax(1)
    return -(log_q.exp() * log_p + log_p.exp() * log_q).sum(1)


def contrastive(z: Tensor, *, tau: float = 0.1) -> Tensor:
    """Contrastive loss over V views of N samples (DMSE Eq. 6; SupCon of RMT and SANTA): scalar.

    Every view is an anchor and the other views of its sample are its positives. The denominator runs over all other
    V N - 1 rows, including equal prototypes of other samples.

    Args:
        z: The views (V, N, d); they are normalised here.
        tau: Temperature.
    """
    # Paper silent (Eq. 6 is a double sum): the mean over the anchors of the mean over their positives.
    views = z.shape[0]
    z = F.normalize(z, dim=-1)
    rows = z.flatten(0, 1)  # (VN, d)
    itself = torch.eye(len(rows), dtype=torch.bool, device=z.device)
    similarity = (rows @ rows.mT / tau).masked_fill(itself, float("-inf"))  # (VN, VN)
    positives = (z * (z.sum(0) - z)).sum(-1) / tau / (views - 1)  # (V, N), the mean over the V - 1 positives
    return similarity.logsumexp(1).mean() - positives.mean()


def cosine_distance(g: Tensor, p: Tensor) -> Tensor:
    """dist(g, p) = (1 - cos(g, p)) / 2 in [0, 1]: (N, C).

    Args:
        g: Features (N, d).
        p: Prototypes (C, d).

    Example:
        >>> cosine_distance(torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, -1.0]]))
        tensor([[0.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    lengths: Tensor = torch.linalg.vector_norm(g, dim=1, keepdim=True) * torch.linalg.vector_norm(p, dim=1)  # (N, C)
    return (0.5 * (1 - g @ p.mT / lengths.clamp(min=1e-12))).clamp(0, 1)


def nearest_prototype(g: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distance to the nearest prototype and its index, for every feature vector: (N,), (N,).

    Args:
        g: Features (N, d).
        p: Prototypes (C, d).
    """
    distance, index = cosine_distance(g, p).min(1)
    return distance, index


def class_means(g: Tensor, index: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean feature of every class, zero for a class without samples, and the counts: (C, d), (C,).

    Args:
        g: Features (N, d).
        index: The class of every sample (N,).
        num_classes: The number of classes.

    Example:
        >>> class_means(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), 2)
        (tensor([[2.],
                [0.]]), tensor([2, 0]))
    """
    counts = torch.bincount(index, minlength=num_classes)
    sums = g.new_zeros(num_classes, g.shape[1]).index_add_(0, index, g)
    return sums / counts.clamp(min=1).unsqueeze(1), counts


def diversity(logits: Tensor) -> Tensor:
    """Effective number of classes in the predictions of a batch: exp of the entropy of the mean prediction, in [1, C].

    1 means that every image gets the same prediction, which is the sign of a collapse.

    Args:
        logits: Logits (N, C).

    Example:
        >>> diversity(100 * torch.eye(4))
        tensor(4.)
    """
    mean = logits.softmax(1).mean(0)
    return (-mean.xlogy(mean).sum()).exp()
