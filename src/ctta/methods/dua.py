"""DUA: adapt the statistics of batch norms with a momentum that decays.

Mirza et al., "The norm must go on: Dynamic unsupervised domain adaptation by normalization", CVPR 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Learning, Step
from ctta.methods._parts.augmix import random_crop
from ctta.methods._parts.moving_norms import MovesStatistics
from ctta.options import StateOptions, check_bounds
from ctta.registry import register


@register
class DUA(MovesStatistics):
    """Move the stored statistics of batch norms towards the stream, less and less.

    The momentum starts at ``start``, decays at every batch and never falls below ``floor``: the first batches adapt the
    network to the new domain, and the later ones keep it there. The prediction for a batch is made after the statistics
    were updated with it. No gradient or optimizer is needed. With ``copies`` a single image is enough.

    Args:
        model: The source model, or a `Classifier` around it.
        start: The momentum before its first decay.
        decay: The momentum is multiplied by this number before every batch.
        floor: Added to the decayed momentum, so that the statistics keep following the stream.
        copies: How many random crops, flips and quarter turns of the newest image the statistics are taken from, 64 in
            the paper. 0 takes them from the batch itself.
        options: ``window``, ``precision``, ``invalid``, ``seed`` and ``reset_every``; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.DUA(bn_cnn())
        >>> [round(model.step(torch.rand(8, 3, 16, 16)).log["momentum"], 4) for _ in range(3)]
        [0.099, 0.0934, 0.0881]
    """

    taken: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        start: float = 0.1,
        decay: float = 0.94,
        floor: float = 0.005,
        copies: int = 0,
        **options: Unpack[StateOptions],
    ) -> None:
        super().__init__(model, **options)
        self.start = start
        self.decay = decay
        self.floor = floor
        self.copies = copies
        check_bounds(self, start=(0, 1), decay=(0, 1), floor=(0, 1), copies=(0, 100_000))
        device = next(self.student.buffers()).device
        self.register_buffer("taken", torch.zeros((), dtype=torch.long, device=device))  # batches so far
        self.begin(())

    def adapt(self, x: Tensor) -> Learning:
        """Decay the momentum, update the statistics, then predict."""
        # Differs from the authors' script, which restarts at every corruption and reports the best of many evaluations.
        taken = self.taken + 1
        momentum = min(self.start * self.decay ** int(taken) + self.floor, 1.0)
        images = random_copies(x[-1:], self.copies, self.generator) if self.copies else x
        logits = self.move_and_predict(x, images, momentum)
        self.taken = taken
        yield logits
        return Step(logits, log={"momentum": momentum})


def random_copies(image: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return random crops of an image, flipped and turned by multiples of 90 degrees.

    Args:
        image: One image (1, C, H, W).
        count: How many copies to make.
        generator: Draws them.
    """
    turns = (0, 1, 2, 3) if image.shape[-2] == image.shape[-1] else (0, 2)  # an oblong image stays oblong
    drawn = torch.randint(len(turns), (count,), generator=generator).tolist()
    return torch.cat([random_crop(image, generator).rot90(turns[i], (-2, -1)) for i in drawn])
