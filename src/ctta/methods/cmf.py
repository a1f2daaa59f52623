"""CMF: ROID whose weights are averaged with a filtered model instead of the source.

Lee and Chang, "Continual momentum filtering on parameter space for online test-time adaptation", ICLR 2024.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.augment import AnyView, View
from ctta.methods._parts.tensors import flat, parts
from ctta.methods.roid import ROID
from ctta.options import SharedOptions, check_bounds
from ctta.registry import register

# The number of trained parameters for which the authors give Q.
_PARAMETERS = 38_400


@register
class CMF(ROID):
    """Train like ROID, and average the weights with a model that a Kalman-like filter keeps near source and student.

    The loss, the sample weights and the prior correction are those of `ROID`. ROID pulls the weights towards the
    source; CMF pulls them towards a hidden model, which drifts back to the source and is corrected by every new
    student. The filter derives the strength of that correction from the variance that it attributes to the drift.

    The fewer parameters are trained, the smaller that variance, and the less a student moves the hidden model. On small
    networks it stays near the source, and CMF is nearly ROID.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: The share of the hidden model that is kept when it drifts back to the source.
        gamma: The share of the student that is kept when its weights are averaged with the hidden model.
        q: Variance of the drift per step, for 38,400 trained parameters; it is scaled by their actual number.
        momentum_probs: Momentum of the mean prediction.
        temperature: Temperature of the sample weights. Lower values let a few samples dominate.
        batch_size: Divides the loss, whatever the size of the batch. None divides by the size of the current batch, so
            that a small last batch takes a full step.
        view: The augmentation, a function of images and generator. The default is that of `ROID`.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.CMF(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    hidden: Tensor | None
    variance: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: float = 0.99,
        gamma: float = 0.99,
        q: float = 0.005,
        momentum_probs: float = 0.9,
        temperature: float = 1 / 3,
        batch_size: int | None = None,
        view: AnyView = View(border="reflect", blur=None, noise=0.0),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(
            model,
            momentum_source=gamma,
            momentum_probs=momentum_probs,
            temperature=temperature,
            batch_size=batch_size,
            view=view,
            **shared,
        )
        self.alpha = alpha
        self.gamma = gamma
        self.q = q
        check_bounds(self, alpha=(0, 1), gamma=(0, 1), q=(0, math.inf))
        count = sum(p.numel() for p in self.trained)
        self.drift = q * count / _PARAMETERS
        # None until the first step: the hidden model starts at the source, without variance.
        self.register_buffer("hidden", None)
        self.register_buffer("variance", None)

    @torch.no_grad()
    def return_to_source(self) -> dict[str, float]:
        """Filter the hidden model h, then average: theta <- gamma theta + (1 - gamma) h for the trained parameters."""
        source, theta = flat(self.source_of_trained()), flat(self.trained)
        h = source if self.hidden is None else self.hidden.lerp(source, 1 - self.alpha)  # predict
        before = 0.0 if self.variance is None else self.alpha**2 * self.variance.item()
        v = before + self.drift
        kept = _rounded((1 - self.drift) / (1 + before))  # beta = r / (v + r) with r = 1 - drift
        h = h.lerp(theta, 1 - kept)  # update
        self.hidden, self.variance = h, theta.new_tensor(kept * v)
        # Differs from the authors' code, which offers to average with the predicted h ("op") but takes the updated one
        # ("lp") either way: both names stand for the same object.
        torch._foreach_lerp_(list[Tensor](self.trained), parts(h, self.trained), 1 - self.gamma)
        return {"hidden_kept": kept}


def _rounded(kept: float) -> float:
    """Keep the share of the hidden model that survives an update in [0.89, 1], and round 0.9999 up to 1."""
    return 1.0 if kept >= 0.9999 else max(kept, 0.89)
