"""BN-adapt: normalise with the statistics of the test batch instead of the stored ones.

Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", 2020;
Nado et al., "Evaluating prediction-time batch normalization for robustness under covariate shift", 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Step
from ctta.errors import NothingToTrain, ParameterError
from ctta.norms import batch_norms, choose_statistics, use_batch_statistics
from ctta.options import AnswerOptions, check_bounds
from ctta.registry import register
from ctta.statistics import Moments, Seen, Share


@register
class BN(Adapter):
    """Normalise with the mean and variance of the test batch instead of the stored ones.

    Nothing is learnt, and nothing is kept from one batch to the next. Models without batch norm are refused.

    Args:
        model: The source model, or a `Classifier` around it.
        alpha: The weight of the batch: a layer normalises with alpha * batch + (1 - alpha) * source statistics. Keep 1
            for batches of about 50 images or more. Lower it, say to 0.1, if batches are small or hold few classes. At
            0 the prediction is that of `Source`. As published it uses the unbiased variance of the batch, its only
            difference from ``statistics="share:0.4"``; the other choices of ``statistics`` need ``alpha=1``.
        options: ``window``, ``precision``, ``invalid`` and ``statistics``; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.BN(bn_cnn(), alpha=0.5)
        >>> model(torch.rand(8, 3, 16, 16)).shape
        torch.Size([8, 10])
    """

    learns = False
    passes = (1, 0)

    def __init__(self, model: nn.Module, *, alpha: float = 1.0, **options: Unpack[AnswerOptions]) -> None:
        super().__init__(model, **options)
        self.alpha = alpha
        check_bounds(self, alpha=(0, 1))
        if not batch_norms(self.student):
            raise NothingToTrain(
                f"BN replaces the statistics of batch norms; {type(self.student.model).__name__} has none. "
                "Use a method that adapts parameters, such as tent or dmse."
            )
        if alpha < 1:
            if self.statistics != "batch":
                raise ParameterError(
                    f"BN blends by 'alpha' or by 'statistics', not by both. Got {alpha} and {self.statistics}. "
                    'To blend by alpha, pass statistics="batch".'
                )
            choose_statistics(self.student, _UnbiasedShare(alpha))
        use_batch_statistics(self.student)
        self.begin(())

    def adapt(self, x: Tensor) -> Step:
        """Predict; the layers take their statistics from the batch itself."""
        return Step(self.student(x).detach())


@dataclass(frozen=True)
class _UnbiasedShare(Share):
    """A fixed share of the batch, with its unbiased variance."""

    def blend(self, seen: Seen) -> Moments:
        mean, var = seen.batch
        return seen.source.towards(Moments(mean, var * seen.values / (seen.values - 1)), self.of_batch)
