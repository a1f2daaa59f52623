"""From predictions to signals: compare an adapter with its reference over enough images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ctta.adapter import Step
from ctta.functional import diversity, entropy
from ctta.guard import Compared, Signals

#: Number of images in a comparison: fewer say too little about diversity.
_ENOUGH = 48
#: A reference with full confidence still makes occasional errors.
_LEAST_ENTROPY = 0.05
_LEAST_DOUBT = 0.02


class Pool:
    """Predictions of adapter and reference for the same images, until there are enough to compare."""

    def __init__(self) -> None:
        self.images = 0
        self.equal = 0
        self.entropy = 0.0
        self.regret = 0.0
        self.doubt = 0.0
        self.own: Tensor | None = None
        self.referred: Tensor | None = None

    @torch.no_grad()
    def add(
        self, own: Tensor, referred: Tensor, logit_scale: float = 1.0, overconfidence: float = 1.0
    ) -> Compared | None:
        """Add a batch, and return the comparison once there are enough images; the pool is then empty again.

        Args:
            own: The logits of the adapter.
            referred: The logits of the reference for the same images.
            logit_scale: The reference's `Reference.logit_scale`.
            overconfidence: The factor by which the reference makes more errors than it expects; see `Confidence`.
        """
        self.own = _added(self.own, own)
        self.referred = _added(self.referred, referred)
        self.images += len(own)
        self.equal += int((own.argmax(1) == referred.argmax(1)).sum())
        single = referred.double() / logit_scale
        self.entropy += entropy(single).sum().item() / _largest_entropy(referred)
        belief = single.softmax(1)
        surest = belief.amax(1)
        self.regret += (surest - belief.gather(1, own.argmax(1, keepdim=True)).squeeze(1)).sum().item()
        self.doubt += (1 - surest).sum().item()
        if self.images < _ENOUGH:
            return None
        agreement = self.equal / self.images
        drift = (1 - agreement) / max(self.entropy / self.images, _LEAST_ENTROPY)
        regret = self.regret / max(overconfidence * self.doubt, _LEAST_DOUBT * self.images)
        compared = Compared(self.images, agreement, drift, regret, _spread(self.referred) - _spread(self.own))
        self.load(Pool().state())
        return compared

    def state(self) -> dict[str, Any]:
        """Return the content of the pool."""
        return dict(vars(self))

    def load(self, state: Mapping[str, Any]) -> None:
        """Load what `state` returned.

        Args:
            state: The content of another pool.
        """
        for name in vars(self):
            setattr(self, name, state[name])


@torch.no_grad()
def signals_of(own: Tensor, step: Step | None = None, compared: Compared | None = None) -> Signals:
    """Return the signals of a batch.

    Args:
        own: The logits of the prediction.
        step: The step that learnt from it; None if nothing was learnt.
        compared: The comparison with the reference, if there is one.
    """
    return Signals(
        images=len(own),
        entropy=entropy(own).mean().item() / _largest_entropy(own),
        diversity=diversity(own).log().item() / _largest_entropy(own),
        loss=None if step is None else step.loss,
        finite=step is None or "skipped" not in step.log,
        compared=compared,
    )


def _added(total: Tensor | None, logits: Tensor) -> Tensor:
    more = logits.double().softmax(1).sum(0).cpu()
    return more if total is None else total + more


def _largest_entropy(logits: Tensor) -> float:
    return math.log(logits.shape[1]) or 1.0


def _spread(total: Tensor) -> float:
    """Return the normalised entropy of a sum of predictions."""
    mean = total / total.sum()
    return -mean.xlogy(mean).sum().item() / (math.log(len(total)) or 1.0)
