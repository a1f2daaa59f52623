"""The kinds of statistics that ctta provides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from ctta.errors import ParameterError
from ctta.statistics.base import Moments, Seen, Statistics


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
        kl = seen.divergence()
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


@dataclass(frozen=True)
class Auto(_Short):
    """Blend batch and source, but keep to the source if a batch holds few classes or images and shows no shift.

    Short form: ``auto``. Under a clear shift, a share of a little less than half is near the best fixed choice if
    classes are mixed. Without a shift, the source is better: a little in large batches of mixed classes, and by far if
    a batch holds few images or few classes. Two numbers tell these cases apart without labels: how concentrated recent
    predictions are on few classes, c, and the shift, m. The shift is the divergence of `Misfit`. That of a single deep
    layer says more about the classes in the batch than about the shift; the mean over the layers so far does not.

    The concentration c is 1 for equally frequent classes and C for a single one of C. In a batch of n images, the doubt
    is d = 1 - (1 - d_c) n / (n + 16), where d_c rises from 0 at c = 1.1 to 1 at c = 1.5. The shift m is the mean of the
    square roots of (divergence - 0.05 / n), where 0.05 / n is about that of a small batch without any shift. The gate
    g = m^6 / (m^6 + t^3) opens at t = 0.0144, or at 0.0144 c / 1.5 for c above 1.5: few classes look like a shift. The
    share of the batch is s * (1 - d + d g) * n / (n + 1/2). Each layer corrects a part of what the layers before it
    have left, so that a network with few batch norms needs a larger part: with L < 19 of them, s is
    1 - (1 - most)^(19 / L), otherwise ``most``.

    A variance smaller than the source's is blended by its logarithm: in the plain mean of the two, a batch whose
    contrast is a tenth of the source's would hardly count.

    Args:
        most: The share s of a large batch under a clear shift, in a network with at least 19 batch norms, as a
            ResNet-20 has.
    """

    most: float = 0.45

    name: ClassVar[str] = "auto"
    follows_predictions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._require(0, 1)

    def measure(self, seen: Seen) -> Tensor:
        """Return the square root of the divergence that a small batch does not explain."""
        return (seen.divergence() - 0.05 / seen.images).clamp(min=0).sqrt()

    def share(self, seen: Seen) -> Tensor:
        """Return the share of the batch, for the classes in it and the shift that the layers so far have seen."""
        shift = torch.stack(list(seen.measured)).mean() ** 6
        gate = shift / (shift + (0.0144 * max(1.0, seen.concentration / 1.5)) ** 3)
        few_classes = min(max((seen.concentration - 1.1) / 0.4, 0.0), 1.0)
        doubt = 1 - (1 - few_classes) * seen.images / (seen.images + 16)
        most = 1 - math.pow(1 - self.most, max(1.0, 19 / seen.layers))
        return most * (1 - doubt + doubt * gate) * (seen.images / (seen.images + 0.5))

    def blend(self, seen: Seen) -> Moments:
        """Return the statistics to normalise with."""
        share = self.share(seen)
        source_var = seen.source.var + seen.eps
        ratio = (seen.batch.var + seen.eps) / source_var
        var = source_var * torch.where(ratio > 1, 1 + share * (ratio - 1), ratio**share) - seen.eps
        return Moments(torch.lerp(seen.source.mean, seen.batch.mean, share), var)
