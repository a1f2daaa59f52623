"""EATA: minimise the entropy of reliable, non-redundant samples; Fisher weights keep parameters near the source.

Niu et al., "Efficient test-time model adaptation without forgetting", ICML 2022. Without Fisher weights it is ETA.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, FromSource, Learning, Step
from ctta.errors import ParameterError
from ctta.methods._parts.entropy_loss import EntropyLoss, entropy_loss
from ctta.methods._parts.fisher import fisher_from_source
from ctta.methods._parts.tensors import flat
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions, check_bounds, with_defaults
from ctta.recipes import WITHOUT_BATCH_NORM, per_dataset
from ctta.registry import register

__all__ = ["EATA", "fisher_from_source"]


@register
class EATA(Adapter):
    """Minimise the entropy of samples that are reliable and not redundant.

    EATA is Tent with sample selection. It learns only from images whose prediction is confident enough and not too
    similar to its recent predictions, and gives the more confident ones a larger weight. With Fisher weights from a few
    source images it also keeps important parameters near their source values; without them it is known as ETA.

    Args:
        model: The source model, or a `Classifier` around it.
        e_margin: E_0 in units of ln C: a sample is reliable if its entropy is below it. The same value works for any
            number of classes. Raise it if ``kept`` in the log stays near zero.
        d_margin: A sample is redundant if the cosine between its prediction and the mean prediction so far reaches this
            value. It depends on the number of classes: with few classes, two predictions may be similar by chance. See
            the recipes.
        fisher: One weight per norm parameter, as a flat tensor from `fisher_from_source`. If it is left out, no source
            data is needed.
        fisher_alpha: Weight of the penalty that keeps parameters near the source. It has an effect only with
            ``fisher``.
        loss: What is minimised: "entropy", or "come", the entropy of an opinion that has an extra uncertain part. With
            "come" the network is not driven to full confidence on unfamiliar images. Samples are then selected and
            weighted by it too.
        come_mass: The mass K of that uncertain part; it has an effect only with ``loss="come"``. None uses the number
            of classes, as in the paper; the authors' code has 1000.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.EATA(bn_cnn(), e_margin=0.6)
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers"
    passes = (1, 1)
    # Differs from the benchmark repo, whose SGD has nesterov momentum; the authors' does not. (RDumb, DeYO, SAR too.)
    defaults: ClassVar[SharedOptions] = {"nesterov": False}
    from_source: ClassVar[FromSource | None] = FromSource(("fisher",), fisher_from_source)
    recipes = per_dataset(
        d_margin={"cifar10-c": 0.4, "cifar100-c": 0.1, "imagenet-c": 0.05, "domainnet-126": 0.1},
        fisher_alpha={"cifar10-c": 1.0, "cifar100-c": 1.0, "imagenet-c": 2000.0, "domainnet-126": 2000.0},
    )
    norm_recipes = WITHOUT_BATCH_NORM

    p_bar: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        e_margin: float = 0.4,
        d_margin: float = 0.05,
        fisher: Tensor | None = None,
        fisher_alpha: float = 2000.0,
        loss: EntropyLoss = "entropy",
        come_mass: float | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, shared))
        self.e_margin = e_margin
        self.d_margin = d_margin
        self.fisher_alpha = fisher_alpha
        self.loss = loss
        self.come_mass = come_mass
        self._entropy = entropy_loss(self)
        # The entropy of an opinion may exceed ln C.
        check_bounds(
            self, e_margin=(0, 1 if loss == "entropy" else math.inf), d_margin=(0, 1), fisher_alpha=(0, math.inf)
        )
        use_batch_statistics(self.student)
        trained = norm_affine(self.student)
        if fisher is not None and fisher.shape != (sum(p.numel() for p in trained),):
            raise ParameterError(
                f"The 'fisher' parameter of {type(self).__name__} must hold one weight per norm parameter, "
                f"({sum(p.numel() for p in trained)},). Got {tuple(fisher.shape)} instead. Use fisher_from_source."
            )
        self.source_free = fisher is None
        self.register_buffer("fisher", None if fisher is None else fisher.detach().to(trained[0].device, copy=True))
        self.register_buffer("p_bar", None)
        self.begin(trained)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step on the selected samples, if there are any."""
        logits = self.student(x)
        h = self._entropy(logits)
        self.require_finite(h.detach().sum())
        yield logits.detach()
        e_0 = self.e_margin * math.log(logits.shape[1])
        reliable = h.detach() < e_0  # Eq. 3
        keep, p_bar = select(logits.detach(), reliable, self.p_bar, self.d_margin)
        if not keep.any():
            return Step(logits.detach(), None, {"kept": 0.0})
        loss = weighted_entropy(h[keep], e_0) + self.forgetting()  # Eqs. 2, 8
        self.descend(loss)
        self.p_bar = p_bar
        return Step(logits.detach(), loss.item(), {"kept": float(keep.sum()), "entropy": h.mean().item()})

    def forgetting(self) -> Tensor:
        """Return the penalty fisher_alpha sum_i F_i (theta_i - theta_i^source)^2 (Eq. 8), which is 0 for ETA."""
        fisher = self.fisher
        if not isinstance(fisher, Tensor):
            return torch.zeros((), device=self.trained[0].device)
        shift = flat(self.trained) - flat(self.source_of_trained())
        return self.fisher_alpha * (fisher * shift**2).sum()


def select(logits: Tensor, reliable: Tensor, p_bar: Tensor | None, d_margin: float) -> tuple[Tensor, Tensor | None]:
    """Return which samples are reliable and not redundant (N,), and the mean prediction with them added (C,).

    Args:
        logits: Logits (N, C), detached.
        reliable: Which samples have an entropy below E_0 (N,).
        p_bar: The mean prediction so far (C,), or None before the first kept sample.
        d_margin: A sample is redundant if its cosine with the mean prediction reaches this value.
    """
    p = logits.softmax(1)
    if p_bar is None:
        return reliable, p[reliable].mean(0) if reliable.any() else None
    keep = reliable & (F.cosine_similarity(p_bar.unsqueeze(0), p).abs() < d_margin)  # Eq. 5
    return keep, 0.9 * p_bar + 0.1 * p[keep].mean(0) if keep.any() else p_bar  # Eq. 4


def weighted_entropy(h: Tensor, e_0: float) -> Tensor:
    """Return the mean entropy of samples, weighted by exp(E_0 - H) (Eq. 2): scalar.

    Args:
        h: Their entropies (N,).
        e_0: E_0 in nats.
    """
    return (h * (e_0 - h.detach()).exp()).mean()
