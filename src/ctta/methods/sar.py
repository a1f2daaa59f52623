"""SAR: sharpness-aware entropy minimisation on reliable samples, with a reset when the model collapses.

Niu et al., "Towards stable test-time adaptation in dynamic wild world", ICLR 2023.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta._adapter.last_stage import SparesLastStage
from ctta.adapter import Adapter, Learning, Step
from ctta.methods._parts.entropy_loss import EntropyLoss, entropy_loss
from ctta.norms import use_batch_statistics
from ctta.options import SharedOptions, check_bounds, with_defaults
from ctta.recipes import WITHOUT_BATCH_NORM, per_dataset
from ctta.registry import register


@register
class SAR(SparesLastStage, Adapter):
    """Minimise entropy where the loss surface is flat, and restore the source if the model collapses.

    For each batch SAR drops uncertain samples, moves the weights a little uphill, and descends with the gradient found
    there. It keeps a moving average of that loss; if the average falls too low, the model has collapsed, and the source
    weights are restored.

    SAR does not train the last quarter of the network: the last of four stages, or the last three of twelve blocks, and
    what follows up to the first linear layer, such as a transformer's final norm. ``ctta doctor`` names these layers.
    In a network with fewer than four stages or blocks, all norm layers are trained.

    Args:
        model: The source model, or a `Classifier` around it.
        e_margin: E_0 in units of ln C: a sample is reliable if its entropy is below it.
        rho: Length of the uphill move. Zero gives plain entropy minimisation on reliable samples, at twice the cost.
        reset_constant: The source is restored if the average loss, an entropy in nats, falls below this value. With
            few classes entropies are smaller and 0.2 may reset a healthy model: lower it.
        loss: What is minimised: "entropy", or "come", the entropy of an opinion that has an extra uncertain part. With
            "come" the network is not driven to full confidence on unfamiliar images. Samples are then selected, and a
            collapse detected, by it too.
        come_mass: The mass K of that uncertain part; it has an effect only with ``loss="come"``. None uses the number
            of classes, as in the paper; the authors' code has 1000.
        stale_average: Keep the average when the source is restored, as the authors' code of SAR and COME does: it then
            restores the source after every batch until the average has risen again.
        last_stage: The modules that are not trained, by name and separated by commas, such as "layer4" or
            "blocks.11,norm"; "" trains all norm layers. None finds them by structure, as described above.
        shared: Options that every method takes; see `Adapter`. ``optimizer`` is "sgd" here, without nesterov.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.SAR(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers before the last stage"
    passes = (2, 2)
    defaults: ClassVar[SharedOptions] = {"optimizer": "sgd", "nesterov": False}
    recipes = per_dataset(optimizer="sgd")
    norm_recipes = WITHOUT_BATCH_NORM

    average: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        e_margin: float = 0.4,
        rho: float = 0.05,
        reset_constant: float = 0.2,
        loss: EntropyLoss = "entropy",
        come_mass: float | None = None,
        stale_average: bool = False,
        last_stage: str | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, shared))
        self.e_margin = e_margin
        self.rho = rho
        self.reset_constant = reset_constant
        self.loss = loss
        self.come_mass = come_mass
        self.stale_average = stale_average
        self._entropy = entropy_loss(self)
        # The entropy of an opinion may exceed ln C.
        check_bounds(
            self, e_margin=(0, 1 if loss == "entropy" else math.inf), rho=(0, 1e3), reset_constant=(0, math.inf)
        )
        use_batch_statistics(self.student)
        self.register_buffer("average", None)
        self.begin_before(last_stage)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, climb by rho, descend with the gradient found there, and restore the source after a collapse."""
        logits = self.student(x)
        yield logits.detach()
        h = self._entropy(logits)
        e_0 = self.e_margin * math.log(logits.shape[1])
        reliable = h.detach() < e_0  # Eq. 2
        self.require_gradient(h.requires_grad)
        # A norm layer that the forward pass does not use, such as an auxiliary head's, has a zero gradient.
        gradient = torch.autograd.grad(_mean(h[reliable]), self.trained, materialize_grads=True)
        norm = self.require_finite(nn.utils.get_total_norm(gradient))

        self.keep_for_undo()
        weights = [p.detach().clone() for p in self.trained]
        with torch.no_grad():
            torch._foreach_add_(list[Tensor](self.trained), gradient, alpha=self.rho / (norm.item() + 1e-12))  # Eq. 4
        try:
            h_2 = self._entropy(self.student(x))[reliable]
            sure = h_2[h_2.detach() < e_0]
            loss = _mean(sure)
            # An empty selection has a zero gradient, and the momentum still moves the weights.
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            with torch.no_grad():
                torch._foreach_copy_(list[Tensor](self.trained), weights)
        self.apply_gradients()

        log = {"kept": float(len(sure)), "entropy": h.mean().item()}
        if len(sure):
            last = loss.detach() if self.average is None else self.average
            self.average = 0.9 * last + 0.1 * loss.detach()
        # Differs from the authors' code, which hard-codes 0.2, and always keeps the average after a reset.
        if self.average is not None and self.average < self.reset_constant:
            average = self.average
            self.restore()  # starts a new average, too
            if self.stale_average:
                self.average = average
            log["restored"] = 1.0
        return Step(logits.detach(), loss.item(), log)


def _mean(values: Tensor) -> Tensor:
    return values.sum() / max(len(values), 1)
