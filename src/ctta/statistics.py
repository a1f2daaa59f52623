"""The statistics that batch norms normalise with: the batch's, the source's, or a blend of both.

The statistics of the batch are right for a strong shift and large batches of mixed classes. For clean or mildly shifted
images, small batches, or batches that hold few classes, they are worse than those of the source. Pass one of these
classes, or its short form as text, as the ``statistics`` of any method that normalises by batch statistics::

    ctta.Tent(net, statistics=ctta.statistics.Prior(16))
    ctta.Tent(net, statistics="prior:16")

To write your own, derive from `Statistics` and override `Statistics.share`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ctta.errors import ParameterError


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
    """

    batch: Moments
    source: Moments
    images: int
    values: int
    eps: float
    state: Mapping[str, Tensor] = field(default_factory=dict)


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

    @abstractmethod
    def share(self, seen: Seen) -> float | Tensor:
        """Return the share of the batch in the statistics, in [0, 1]: one for all channels, or one for each.

        Args:
            seen: What the layer has seen.
        """

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


class _Short(Statistics):
    """Statistics with a short form: a name, and a number after a colon if there is one."""

    name: ClassVar[str]

    def __str__(self) -> str:
        numbers = [getattr(self, entry.name) for entry in fields(self)]  # type: ignore[arg-type]
        return ":".join([self.name, *(repr(int(v) if v == int(v) else v) for v in numbers)])

    def _require(self, low: float, high: float) -> None:
        for entry in fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not low <= value <= high:
                raise ParameterError(
                    f"The {entry.name!r} parameter of {type(self).__name__} must be a number in [{low}, {high}]. "
                    f"Got {value!r} instead."
                )


@dataclass(frozen=True)
class Batch(_Short):
    """The statistics of the batch alone, as the methods were published. Short form: ``batch``."""

    name: ClassVar[str] = "batch"

    def share(self, seen: Seen) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class Source(_Short):
    """The statistics that the model was trained with. Short form: ``source``."""

    name: ClassVar[str] = "source"

    def share(self, seen: Seen) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True)
class Prior(_Short):
    """Count the source statistics as a number of images: share n / (n + images) for a batch of n images.

    Large batches hardly change, small ones lean on the source. Short form: ``prior:16``.

    Args:
        images: How many images the source counts for.
    """

    images: float

    name: ClassVar[str] = "prior"

    def __post_init__(self) -> None:
        self._require(0, 1e9)

    def share(self, seen: Seen) -> float:
        """Return n / (n + images)."""
        return seen.images / (seen.images + self.images)


@dataclass(frozen=True)
class Share(_Short):
    """A fixed share of the batch. Short form: ``share:0.4``.

    Args:
        of_batch: The share of the batch; the rest is that of the source.
    """

    of_batch: float

    name: ClassVar[str] = "share"

    def __post_init__(self) -> None:
        self._require(0, 1)

    def share(self, seen: Seen) -> float:
        """Return the fixed share."""
        return self.of_batch


@dataclass(frozen=True)
class Misfit(_Short):
    """The more a layer's input differs from the source, the larger the share of the batch. Short form: ``misfit``.

    The share is KL / (KL + scale) per layer, where KL is the divergence of the batch's normal distribution from the
    source's, averaged over channels.

    Args:
        scale: The divergence at which batch and source count equally.
    """

    scale: float = 0.08

    name: ClassVar[str] = "misfit"

    def __post_init__(self) -> None:
        self._require(1e-9, 1e9)

    def share(self, seen: Seen) -> Tensor:
        """Return KL / (KL + scale)."""
        var, source_var = seen.batch.var + seen.eps, seen.source.var + seen.eps
        shift = (seen.batch.mean - seen.source.mean).square()
        kl = 0.5 * ((var + shift) / source_var - 1 - (var / source_var).log()).mean()
        return kl / (kl + self.scale)


@dataclass(frozen=True)
class Moving(_Short):
    """A moving average over batches that starts at the source, as in RoTTA. Short form: ``moving:0.05``.

    A layer normalises with (1 - rate) * average + rate * batch, which becomes the average after the step. Predictions
    without learning do not update it. Its memory is about 1 / rate steps.

    Args:
        rate: The share of the batch at each step.
    """

    rate: float

    name: ClassVar[str] = "moving"
    keeps_state: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._require(0, 1)

    def share(self, seen: Seen) -> float:
        """Return the rate."""
        return self.rate

    def reference(self, source: Moments, state: Mapping[str, Tensor]) -> Moments:
        """Return the average so far."""
        return Moments(state["moving_mean"], state["moving_var"])

    def initial_state(self, source: Moments) -> dict[str, Tensor]:
        """Start at the source."""
        return {"moving_mean": source.mean.clone(), "moving_var": source.var.clone()}

    def next_state(self, seen: Seen) -> dict[str, Tensor]:
        """Return the average that the layer normalised with."""
        mean, var = self.blend(seen)
        return {"moving_mean": mean, "moving_var": var}


_SHORT: tuple[type[_Short], ...] = (Batch, Source, Prior, Share, Misfit, Moving)
_KINDS: Mapping[str, Callable[..., _Short]] = {kind.name: kind for kind in _SHORT}
#: The accepted forms of an argument, for messages.
WORDS = "'batch', 'source', 'prior:16', 'share:0.4', 'misfit', 'moving:0.05' or a ctta.statistics.Statistics"


def as_statistics(given: object) -> Statistics:
    """Read the short form of statistics.

    Args:
        given: The short form; statistics are returned as they are.

    Raises:
        ParameterError: If it is neither, or its number is out of range.

    Example:
        >>> as_statistics("prior:16")
        Prior(images=16.0)
        >>> str(as_statistics("misfit"))
        'misfit:0.08'
    """
    if isinstance(given, Statistics):
        return given
    name, colon, number = given.partition(":") if isinstance(given, str) else ("", "", "")
    try:
        value = float(number) if colon else None
        if value is not None and not math.isfinite(value):
            raise ValueError(number)
        return _KINDS[name]() if value is None else _KINDS[name](value)
    except ParameterError:  # a number out of range
        raise
    except (KeyError, ValueError, TypeError):  # an unknown name, not a number, or too many or too few
        raise ParameterError(f"Statistics must be {WORDS}. Got {given!r} instead.") from None


def short_form(statistics: Statistics) -> Statistics | str:
    """Return the short form, or the statistics themselves if they have none.

    Args:
        statistics: The statistics.
    """
    return str(statistics) if type(statistics) in _SHORT else statistics


def is_statistics(given: Any) -> bool:
    """Return whether an argument is a valid choice of statistics.

    Args:
        given: The argument.
    """
    try:
        as_statistics(given)
    except ParameterError:
        return False
    return True
