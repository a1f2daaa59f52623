"""A fair control for Trio: SANTA* with the same free predictions.

It is run by name: `ctta run benchmarks/control_santa.py:FreeSANTA cifar10-c --set statistics=auto`.
"""

from __future__ import annotations

from torch import Tensor

import ctta
from ctta.adapter import Learning, Step
from ctta.functional import contrastive, cross_entropy, nearest_prototype
from ctta.methods.trio import GEOMETRIC
from ctta.projection import projected


class FreeSANTA(ctta.SANTA):
    """SANTA* that predicts with all three passes and with the view of Trio; its anchor looks at the mirrored batch."""

    mirrored = ("anchor",)

    def adapt(self, x: Tensor) -> Learning:
        """Predict with all three passes, then learn as SANTA does."""
        anchor = self.anchor(x.flip(-1))
        logits, g = self.student.with_features(x)
        logits_aug, g_aug = self.student.with_features(GEOMETRIC(x, self.generator))
        prediction = (logits.detach() + anchor + logits_aug.detach()) / 3
        yield prediction
        _, nearest = nearest_prototype(g.detach(), self.p_0)
        loss_sa = 0.5 * (cross_entropy(anchor, logits) + cross_entropy(anchor, logits_aug)).mean()
        loss_ta = contrastive(projected(self.project, self.p_0[nearest], g, g_aug), tau=self.tau)
        loss = loss_sa + self.lambda_cl * loss_ta
        self.descend(loss)
        return Step(prediction, loss.item(), {"loss_sa": loss_sa.item(), "loss_ta": loss_ta.item()})

    def answer(self, x: Tensor) -> Tensor:
        """Predict with all three passes."""
        return (self.student(x) + self.anchor(x.flip(-1)) + self.student(GEOMETRIC(x, self.generator))) / 3
