"""Fair controls for Trio: published methods with the same free predictions.

They are run by name, such as `ctta run benchmarks/controls.py:FreeRMT cifar10-c --set statistics=auto`.
"""

from __future__ import annotations

import torch
from torch import Tensor

import ctta
from ctta.adapter import Learning, Step
from ctta.functional import contrastive, nearest_prototype
from ctta.methods.trio import GEOMETRIC
from ctta.teacher import ema_


class FreeRMT(ctta.RMT):
    """RMT* that predicts with all three passes and with the view of Trio; its teacher looks at the mirrored batch."""

    mirrored = ("teacher",)

    def adapt(self, x: Tensor) -> Learning:
        """Predict with all three passes, then learn as RMT does."""
        target = self.teacher(x.flip(-1))
        logits, g = self.student.with_features(x)
        logits_aug, g_aug = self.student.with_features(GEOMETRIC(x, self.generator))
        prediction = (logits.detach() + target + logits_aug.detach()) / 3
        yield prediction
        _, nearest = nearest_prototype(g.detach(), self.p_0)
        loss_st = 0.5 * (self.consistency(logits, target) + self.consistency(logits_aug, target))
        loss_cl = contrastive(self.project(torch.stack([self.p_0[nearest], g, g_aug])), tau=self.tau)
        loss = loss_st + self.lambda_cl * loss_cl
        self.descend(loss)
        ema_(self.teacher, self.student, self.alpha)
        return Step(prediction, loss.item(), {"loss_st": loss_st.item(), "loss_cl": loss_cl.item()})

    def answer(self, x: Tensor) -> Tensor:
        """Predict with all three passes."""
        return (self.student(x) + self.teacher(x.flip(-1)) + self.student(GEOMETRIC(x, self.generator))) / 3


class FreeBN(ctta.BN):
    """Batch norm statistics without learning, averaged over the batch, its mirror image and a view."""

    passes = (3, 0)

    def adapt(self, x: Tensor) -> Step:
        """Predict three times."""
        with torch.no_grad():
            return Step(self.answer(x))

    def answer(self, x: Tensor) -> Tensor:
        """Predict three times."""
        return (self.student(x) + self.student(x.flip(-1)) + self.student(GEOMETRIC(x, self.generator))) / 3
