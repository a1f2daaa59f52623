"""NOTE: instance-aware batch norm, and a reservoir of images that is balanced over predicted classes.

Gong et al., "NOTE: Robust continual test-time adaptation against temporal correlation", NeurIPS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.methods._parts.norm_layers import substitute, undone_on_error
from ctta.methods._parts.note import IABN, BalancedReservoir, iabn_layers, normalising
from ctta.options import SharedOptions, check_bounds, with_defaults
from ctta.recipes import per_dataset
from ctta.registry import register

_BATCH = 64


@register
class NOTE(Adapter):
    """Normalise each image by common statistics unless it deviates, and learn from a class-balanced reservoir.

    NOTE is made for streams in which images of one class arrive together. Batch norms use stored statistics, corrected
    for images whose own statistics deviate significantly. Images go to a reservoir that is balanced over the predicted
    classes and over time. Every ``update_every`` images the batch norms learn from it: their weights and biases by its
    entropy, their statistics by a moving average. The reservoir holds real images, and so do checkpoints. The paper
    trains the source model with these norms; a model trained with batch norms is converted.

    Args:
        model: The source model, or a `Classifier` around it.
        k: How many standard errors an image must deviate before its own statistics count. Larger values trust the
            common statistics more.
        memory_size: The number of images held.
        update_every: How many images pass between two updates, whatever the size of the batches.
        statistics_share: The share of the reservoir at each update of the stored statistics.
        learned_statistics: Predict with the stored statistics. If False, those of the images between two updates are
            used (an ablation of the paper). Batches of ``update_every`` images, or of a multiple, reproduce it.
        temperature: Divides the logits in the entropy that is minimised.
        shared: Options that every method takes; see `Adapter`. The default here is Adam with lr 0.0001.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.NOTE(bn_cnn(), memory_size=8, update_every=8)
        >>> [model.step(torch.rand(4, 3, 16, 16)).log["updates"] for _ in range(4)]
        [0.0, 1.0, 0.0, 1.0]
    """

    trains = "the weights and biases of batch norms"
    uses_batch_statistics = False
    # An update may fall into a batch: the images after it are predicted after learning from those before it.
    predicts_first = False
    # For a batch of `update_every` images: the batch, then the reservoir.
    passes = (2, 1)
    defaults: ClassVar[SharedOptions] = {"lr": 1e-4, "nesterov": False}
    recipes = per_dataset(optimizer="adam", lr=1e-4)

    def __init__(
        self,
        model: nn.Module,
        *,
        k: float = 4.0,
        memory_size: int = 64,
        update_every: int = 64,
        statistics_share: float = 0.01,
        learned_statistics: bool = True,
        temperature: float = 1.0,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, shared))
        self.k = k
        self.memory_size = memory_size
        self.update_every = update_every
        self.statistics_share = statistics_share
        self.learned_statistics = learned_statistics
        self.temperature = temperature
        check_bounds(self, k=(0, math.inf), memory_size=(1, 100_000), update_every=(1, math.inf))
        check_bounds(self, statistics_share=(0, 1), temperature=(1e-6, math.inf))
        self.passes = (2 if learned_statistics else 3, 1)
        layers = substitute(
            self.student, lambda layer: IABN(layer, k=k, base="stored" if learned_statistics else "batch")
        )
        trained = [p for layer in layers for p in layer.parameters()]
        self.require_trainable(trained)
        self.memory = BalancedReservoir(memory_size).to(layers[0].mean.device)
        self.begin(trained)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, offer every image to the reservoir, and learn every ``update_every`` images.

        As in the authors' code, which takes one image at a time, the images of a batch that come after an update are
        predicted after it. A prediction therefore waits for the updates inside its batch, but not for one at its end.
        """
        self.memory.refuse_other_size(x, "NOTE")
        *earlier, last = self.until_updates(x)
        losses: list[float | None] = []
        logits = []
        for images in earlier:
            logits.append(self.predicted(images))
            losses += self.offer_all(images, logits[-1])
        logits.append(self.predicted(last))
        prediction = torch.cat(logits)
        yield prediction
        losses += self.offer_all(last, logits[-1])
        done = [loss for loss in losses if loss is not None]
        return Step(prediction, done[-1] if done else None, {"updates": float(len(done))})

    def until_updates(self, x: Tensor) -> Sequence[Tensor]:
        """Split a batch after every image that completes ``update_every``.

        Args:
            x: Images (N, C, H, W).
        """
        first = min(self.update_every - self.offered % self.update_every, len(x))
        return [x[:first], *torch.split(x[first:], self.update_every)] if first < len(x) else [x]

    @property
    def offered(self) -> int:
        """How many images were offered to the reservoir so far."""
        return 0 if self.memory.seen is None else int(self.memory.seen.sum())

    def predicted(self, x: Tensor) -> Tensor:
        """Return the logits (N, C).

        Args:
            x: Images (N, C, H, W).
        """
        with torch.no_grad():
            logits = self.student(x)
        self.require_finite(logits.sum())
        return logits

    def offer_all(self, x: Tensor, logits: Tensor) -> list[float | None]:
        """Offer images to the reservoir, and return the loss of the update if the last of them completes one.

        Args:
            x: Images (N, C, H, W).
            logits: Their prediction (N, C).
        """
        for image, label in zip(x, self.labels(x, logits).tolist(), strict=True):
            self.memory.offer(image, label, classes=logits.shape[1], choice=self.choice, uniform=self.uniform)
        return [] if self.offered % self.update_every else [self.attempt(self.learn_from_memory)]

    def labels(self, x: Tensor, logits: Tensor) -> Tensor:
        """Return the predicted classes by which images enter the reservoir: (N,).

        Args:
            x: Images (N, C, H, W).
            logits: The prediction (N, C).
        """
        if self.learned_statistics:
            return logits.argmax(1)
        # Without stored statistics an image enters by its prediction alone, before the rest of its batch arrives.
        with torch.no_grad(), normalising(iabn_layers(self.student), "image"):
            return self.student(x).argmax(1)

    def learn_from_memory(self) -> float:
        """Take one step on each batch of the reservoir: the entropy, averaged over images and classes."""
        images = self.memory.content()
        if len(images) > _BATCH:
            images = images[torch.randperm(len(images), generator=self.generator).to(images.device)]
        for batch in torch.split(images, _BATCH):
            layers = iabn_layers(self.student)
            with undone_on_error(layers), normalising(layers, "batch", share=self.statistics_share):
                p = (self.student(batch.contiguous(memory_format=self._layout)) / self.temperature).softmax(1)
                loss = -(p * (p + 1e-6).log()).mean()
                self.descend(loss)
        return loss.item()

    def choice(self, options: Sequence[int]) -> int:
        """Draw one of the given numbers.

        Args:
            options: The numbers.
        """
        return options[int(torch.randint(len(options), (), generator=self.generator))]

    def uniform(self) -> float:
        """Draw a number from [0, 1)."""
        return torch.rand((), dtype=torch.float64, generator=self.generator).item()
