"""Tent: train the weights and biases of the norm layers to minimise the entropy of the predictions.

Wang et al., "Tent: Fully test-time adaptation by entropy minimization", ICLR 2021. Continual: never reset.
"""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.methods._parts.entropy_loss import EntropyLoss, entropy_loss
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions, with_defaults
from ctta.recipes import WITHOUT_BATCH_NORM, per_dataset
from ctta.registry import register


@register
class Tent(Adapter):
    """Make predictions more confident by training the norm layers to minimise their entropy.

    For each batch Tent normalises with the batch's own statistics, predicts, and takes one optimizer step on the mean
    entropy of the predictions. Only the weights and biases of normalisation layers change. This is the continual form:
    nothing is ever reset.

    The learning rate is the one setting that matters. Entropy has a trivial minimum, the same class for every image,
    and a large step finds it. If your batches are much smaller than the recipe's, lower ``lr`` in proportion.

    Args:
        model: The source model, or a `Classifier` around it.
        loss: What is minimised: "entropy", or "come", the entropy of an opinion that has an extra uncertain part. With
            "come" the network is not driven to full confidence on unfamiliar images.
        come_mass: The mass K of that uncertain part; it has an effect only with ``loss="come"``. None uses the number
            of classes, as in the paper; the authors' code has 1000.
        shared: Options that every method takes; see `Adapter`. With ``loss="come"``, "sgd" is without nesterov.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.Tent(bn_cnn(), lr=1e-4)
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers"
    passes = (1, 1)
    recipes = per_dataset()
    norm_recipes = WITHOUT_BATCH_NORM

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: EntropyLoss = "entropy",
        come_mass: float | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        # As in the code of COME's authors.
        super().__init__(model, **with_defaults({"nesterov": False} if loss == "come" else {}, shared))
        self.loss = loss
        self.come_mass = come_mass
        self._entropy = entropy_loss(self)
        use_batch_statistics(self.student)
        self.begin(norm_affine(self.student))

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step on the mean entropy of the batch."""
        logits = self.student(x)
        yield logits.detach()
        loss = self._entropy(logits).mean()
        self.descend(loss)
        return Step(logits.detach(), loss.item())
