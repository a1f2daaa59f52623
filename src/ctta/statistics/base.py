"""What statistics are: moments, what a layer has seen, and the choice between batch and source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """The mean and the biased variance of every channel."""

    mean: Tensor
    var: Tensor

    def towards(self, other: Moments, share: float | Tensor) -> Moments:
        """Mix with other moments: (1 - share) * self + share * other.

        Args:
            other: The other moments.
            share: Their share: one for all channels, or one for each.
        """
        return Moments(torch.lerp(self.mean, other.mean, share), torch.lerp(self.var, other.var, share))


@dataclass(frozen=True)
class Seen:
    """What a layer has seen when it chooses its statistics.

    Args:
        batch: Moments of its input.
        source: Its source statistics.
        images: Images in the batch.
        values: Values per channel: images times positions.
        eps: The constant that the layer adds to a variance.
        state: What the layer keeps from batch to batch; see `Statistics.initial_state`.
        measured: What the layers of this pass have measured so far, this layer's own last; see `Statistics.measure`.
        concentration: How much more often two recent predictions of the adapter are the same class than if all classes
            were equally frequent; see `Statistics.follows_predictions`.
        layers: The number of batch norms in the network. Known to layers that measure something.
    """

    batch: Moments
    source: Moments
    images: int
    values: int
    eps: float
    state: Mapping[str, Tensor] = field(default_factory=dict)
    measured: Sequence[Tensor] = ()
    concentration: float = 1.0
    layers: int = 1

    def divergence(self) -> Tensor:
        """Return the KL divergence of the batch's normal distribution from the source's, averaged over channels."""
        var, source_var = self.batch.var + self.eps, self.source.var + self.eps
        shift = (self.batch.mean - self.source.mean).square()
        return 0.5 * ((var + shift) / source_var - 1 - (var / source_var).log()).mean()


class Statistics(ABC):
    """How a batch norm chooses the statistics to normalise with.

    A layer may keep tensors from batch to batch. They become buffers of the layer: they are saved in checkpoints, reset
    and rolled back with the adapter, and each network of an adapter (student, teacher) has its own.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> class Half(ctta.statistics.Statistics):
        ...     def share(self, seen):
        ...         return 0.5
        >>> ctta.Tent(bn_cnn(), statistics=Half())(torch.rand(1, 3, 16, 16)).shape  # one image is enough
        torch.Size([1, 10])
    """

    #: Whether layers keep a state; if so, it is updated once per learning step.
    keeps_state: ClassVar[bool] = False
    #: Whether layers need to know how concentrated recent predictions are. The adapter then counts their classes.
    follows_predictions: ClassVar[bool] = False

    @abstractmethod
    def share(self, seen: Seen) -> float | Tensor:
        """Return the share of the batch in the statistics, in [0, 1]: one for all channels, or one for each.

        Args:
            seen: What the layer has seen.
        """

    def measure(self, seen: Seen) -> Tensor | None:
        """Return a number that this layer and the layers after it in the same pass should know, if any.

        Args:
            seen: What the layer has seen, without what it measures itself.
        """
        return None

    def reference(self, source: Moments, state: Mapping[str, Tensor]) -> Moments:
        """Return what the batch is blended with, and what a batch with a single value per channel uses instead.

        Args:
            source: The source statistics.
            state: What the layer keeps.
        """
        return source

    def blend(self, seen: Seen) -> Moments:
        """Return the statistics to normalise with.

        Args:
            seen: What the layer has seen.
        """
        return self.reference(seen.source, seen.state).towards(seen.batch, self.share(seen))

    def initial_state(self, source: Moments) -> dict[str, Tensor]:
        """Return new tensors for a layer to keep, keyed by buffer name.

        Args:
            source: The source statistics.
        """
        return {}

    def next_state(self, seen: Seen) -> dict[str, Tensor]:
        """Return the state after a learning step, in which the layer saw a batch.

        Args:
            seen: What the layer saw in its first pass of the step, with the state as it was.
        """
        return {}
