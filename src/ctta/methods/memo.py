"""MEMO: before predicting for an image, make the mean prediction over its augmented copies confident.

Zhang et al., "MEMO: Test time robustness via adaptation and augmentation", NeurIPS 2022.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.augment import AnyView
from ctta.methods._parts.augmix import AugMix
from ctta.methods._parts.memo import BlendedNorm, together
from ctta.methods._parts.norm_layers import substitute
from ctta.norms import weights_and_biases
from ctta.options import SharedOptions, check_bounds, with_defaults
from ctta.recipes import BENCHMARKS
from ctta.registry import register


@register
class MEMO(Adapter):
    """Take one step on the entropy of the mean prediction over augmented copies of an image, then predict for it.

    Every image is a separate task: the whole network starts from the source, learns from copies of the one image,
    predicts for the image itself and returns to the source. The stream may therefore come in any order and in batches
    of one. Batch norms mix a little of the image's statistics into those of the source. A step costs about a hundred
    times as much as one of Tent. ``predict``, which never learns, gives the prediction of the source with these
    statistics.

    Args:
        model: The source model, or a `Classifier` around it.
        views: How many augmented copies of an image are made. They are the main cost.
        alpha: The share of the copies, and then of the image, in the statistics of batch norms; the rest is the
            source's.
        episodic: Return to the source after every image. If False, what was learnt from one image is kept.
        view: The augmentation, a function of images and generator, called once for every copy. The default is a mild
            AugMix, as the authors use it.
        shared: Options that every method takes; see `Adapter`. The default here is SGD with lr 0.005.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.MEMO(bn_cnn(), views=4)
        >>> model(torch.rand(1, 3, 16, 16)).shape
        torch.Size([1, 10])
    """

    trains = "parameters named weight or bias"
    uses_batch_statistics = False
    predicts_first = False
    # For every image: `views` copies, differentiated, and the image itself.
    passes = (33, 32)
    defaults: ClassVar[SharedOptions] = {"optimizer": "sgd", "lr": 0.005}
    recipes: ClassVar = {
        name: {"optimizer": "sgd", "lr": 0.005 if "cifar" in name else 2.5e-4, "views": 32 if "cifar" in name else 64}
        for name in BENCHMARKS
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        views: int = 32,
        alpha: float = 0.1,
        episodic: bool = True,
        view: AnyView = AugMix(),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, shared))
        self.views = views
        self.alpha = alpha
        self.episodic = episodic
        self.view = view
        check_bounds(self, views=(1, 10_000), alpha=(0, 1))
        self.passes = (views + 1, views)
        substitute(self.student, lambda layer: BlendedNorm(layer, alpha))
        self.begin(weights_and_biases(self.student))

    def adapt(self, x: Tensor) -> Learning:
        """Learn from each image and predict for it, one image after the other."""
        results = [self.learn_and_predict(image) for image in torch.split(x, 1)]
        logits = torch.cat([logits for logits, _ in results])
        yield logits
        losses = [loss for _, loss in results if loss is not None]
        return Step(logits, sum(losses) / len(losses) if losses else None, {"learnt": float(len(losses))})

    def learn_and_predict(self, image: Tensor) -> tuple[Tensor, float | None]:
        """Return the logits for an image after a step on its copies, and the loss, or None if it was not finite.

        Args:
            image: One image (1, C, H, W).
        """
        loss = self.attempt(lambda: self.step_on_copies(image))
        with torch.no_grad():
            logits = self.student(image)
        if self.episodic and loss is not None:
            self.return_to_source()
        return logits, loss

    def step_on_copies(self, image: Tensor) -> float:
        """Take one step on the marginal entropy of augmented copies.

        Args:
            image: One image (1, C, H, W).
        """
        copies = torch.cat([self.view(image, self.generator) for _ in range(self.views)])
        with together(self.student):
            loss = marginal_entropy(self.student(copies))
        self.descend(loss)
        return loss.item()

    @torch.no_grad()
    def return_to_source(self) -> None:
        """Return the weights and the optimizer to their initial state."""
        torch._foreach_copy_(list[Tensor](self.trained), self.source_of_trained())
        assert self._optimizer is not None
        self._optimizer.state.clear()


def marginal_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the mean prediction: a scalar.

    Args:
        logits: Logits (N, C) of the copies of one image.
    """
    log_mean = logits.log_softmax(1).logsumexp(0) - math.log(len(logits))
    return -(log_mean.exp() * log_mean).sum()
