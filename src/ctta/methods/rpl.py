"""RPL: train the norm layers on robust pseudo-labels, by the generalised cross-entropy.

Rusak et al., "If your data distribution shifts, use self-learning", TMLR 2022.
"""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.functional import generalised_cross_entropy
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register


@register
class RPL(Adapter):
    """Train the norm layers on the model's own labels, with a loss that tolerates incorrect ones.

    RPL is Tent with another loss. The label of an image is its predicted class, and the generalised cross-entropy
    limits the influence of a doubtful label.

    Args:
        model: The source model, or a `Classifier` around it.
        q: Exponent of the loss (1 - p_y^q) / q. Near 0 it is the cross-entropy; at 1 it is 1 - p_y, which is least
            sensitive to incorrect labels.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.RPL(bn_cnn())
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers"
    passes = (1, 1)
    recipes = per_dataset(sgd_lr=5e-4)

    def __init__(self, model: nn.Module, *, q: float = 0.8, **shared: Unpack[SharedOptions]) -> None:
        super().__init__(model, **shared)
        self.q = q
        check_bounds(self, q=(1e-6, 1))
        use_batch_statistics(self.student)
        self.begin(norm_affine(self.student))

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step on the loss against the predicted classes."""
        logits = self.student(x)
        yield logits.detach()
        loss = generalised_cross_entropy(logits, logits.detach().argmax(1), self.q).mean()
        self.descend(loss)
        return Step(logits.detach(), loss.item())
