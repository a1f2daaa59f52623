"""How overconfident the unadapted network is, estimated without labels from how steady its predictions are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

#: Images are shifted by this share of their side, which changes no class.
_SHIFT = 1 / 16
#: The first comparisons are all measured, later ones every so many.
_FIRST = 8
_EVERY = 8
#: The weight of an earlier measurement beside the next one.
_KEPT = 0.9
#: Doubted images by which a network counts as calibrated before anything is measured.
_PRIOR = 10.0
_MOST = 3.0


class Confidence:
    """The share of predictions that change when images are shifted a little, beside the share that the network doubts.

    A calibrated network is wrong as often as it doubts. Under a shift of the domain most networks are wrong far more
    often than that, and about as often a small shift of the image changes their prediction.
    """

    def __init__(self) -> None:
        self.comparisons = 0
        self.changed = 0.0
        self.doubted = 0.0

    @property
    def overconfidence(self) -> float:
        """The factor by which the network makes more errors than it expects: 1 if it is calibrated, and at most 3."""
        return min(max((self.changed + _PRIOR) / (self.doubted + _PRIOR), 1.0), _MOST)

    @property
    def due(self) -> bool:
        """Whether the next comparison is to be measured."""
        return self.comparisons < _FIRST or self.comparisons % _EVERY == 0

    def count(self) -> None:
        """Note a comparison."""
        self.comparisons += 1

    @torch.no_grad()
    def measure(self, logits: Tensor, shifted: Tensor, logit_scale: float = 1.0) -> None:
        """Add a measurement.

        Args:
            logits: The network's logits for some images.
            shifted: Its logits for the same images, shifted.
            logit_scale: The reference's `Reference.logit_scale`.
        """
        finite = logits.isfinite().all(1) & shifted.isfinite().all(1)
        logits, shifted = logits[finite], shifted[finite]
        surest = (logits.double() / logit_scale).softmax(1).amax(1)
        self.changed = _KEPT * self.changed + float((logits.argmax(1) != shifted.argmax(1)).sum())
        self.doubted = _KEPT * self.doubted + float((1 - surest).sum())

    def state(self) -> dict[str, Any]:
        """Return what was measured."""
        return dict(vars(self))

    def load(self, state: Mapping[str, Any]) -> None:
        """Load what `state` returned.

        Args:
            state: What `state` returned.
        """
        self.comparisons = int(state["comparisons"])
        self.changed, self.doubted = float(state["changed"]), float(state["doubted"])


def shifted(x: Tensor) -> Tensor:
    """Return images moved down and to the right; the edge pixels are repeated.

    Args:
        x: Images (N, C, H, W).
    """
    height, width = x.shape[-2:]
    down, right = max(1, round(height * _SHIFT)), max(1, round(width * _SHIFT))
    return pad(x, (right, 0, down, 0), mode="replicate")[..., :height, :width]
