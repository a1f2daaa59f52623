"""The accuracy of a source model under two corruptions: measured on a coarse grid, cached on disk, and interpolated."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Literal

import torch

from ctta._checks.numbers import check_whole
from ctta._system.cache import keep, recall
from ctta._system.tensor_digest import add_tensor
from ctta.classifier import Classifier
from ctta.corruptions import frost_source
from ctta.corruptions.constants import Scale
from ctta.datasets.corrupted_twice import At, CorruptedTwice
from ctta.datasets.domain import Labelled
from ctta.errors import ParameterError
from ctta.version import __version__

#: How to get the accuracy under two corruptions: measure some severities of both, or add up the losses of each alone.
Fill = Literal["bilinear", "additive"]

#: Called with the name of the current part, the number of images done and the total.
Progress = Callable[[str, int, int], None]

_STRONGEST = 5


def levels_of(step: float, what: str) -> int:
    """Return the number of equal steps into which the severities from 0 to 5 are divided.

    Args:
        step: The length of a step, such as 0.25.
        what: What the step is; the first words of the error message.

    Raises:
        ParameterError: If 5 is not a multiple of it.
    """
    count = round(_STRONGEST / step) if isinstance(step, (int, float)) and 0 < step <= _STRONGEST else 0
    if not 1 <= count <= 1000 or abs(count * step - _STRONGEST) > 1e-9:
        raise ParameterError(f"{what} must divide 5, such as 0.25, 0.5 or 1. Got {step!r} instead.")
    return count


def fill_of(value: object) -> Fill:
    """Return a way to fill the table of accuracies.

    Args:
        value: "bilinear" or "additive".

    Raises:
        ParameterError: If it is neither.
    """
    if value == "bilinear":
        return "bilinear"
    if value == "additive":
        return "additive"
    raise ParameterError(f"The table of accuracies is filled 'bilinear' or 'additive'. Got {value!r} instead.")


class SourceAccuracy:
    """Measure how often a source model is correct under two corruptions, and store it in ctta's cache.

    Only what is needed is measured: the clean images, each corruption alone, and pairs of corruptions in the order
    in which they are applied. The severities between the measured ones are interpolated.

    Args:
        source: The source model.
        images: The clean images.
        count: Images to measure with; the same for every seed of a stream.
        step: Distance between the measured severities; it must divide 5.
        fill: "bilinear" measures both corruptions at every pair of these severities. "additive" measures each alone and
            subtracts both losses of accuracy, down to chance: fewer measurements, but corruptions that hide each other
            or add up to more are misjudged.
        scale: Whose published constants to use, "cifar" or "imagenet"; None chooses by image size.
        progress: Called with the name of the current part, the number of images done and the total.
    """

    def __init__(
        self,
        source: Classifier,
        images: Labelled,
        *,
        count: int = 100,
        step: float = 0.5,
        fill: Fill = "bilinear",
        scale: Scale | None = None,
        progress: Progress | None = None,
    ) -> None:
        check_whole(count, "The number of images to measure with")
        self.levels = levels_of(step, "The step of the severities that are measured")
        self.fill = fill_of(fill)
        self.scale: Scale | None = scale
        self.progress = progress
        # Only an additive table needs it, and not every model tells its number of classes.
        self._chance = 100 / source.num_classes if self.fill == "additive" else 0.0
        # Not the seed of a run: all runs share one table.
        some = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:count]
        self._images = images.take(some)
        self._source = copy.deepcopy(source).eval()
        self._identity = self._digest(source)
        self._found: dict[str, list[float]] = {}

    def grid(self, first: str, second: str, levels: int) -> list[list[float]]:
        """Return the accuracy in percent by the severities of two corruptions, at 0, 5 / levels, ..., 5 of each.

        Args:
            first: The corruption that is applied first.
            second: The corruption that is applied to the result.
            levels: Steps into which the severities are divided.
        """
        clean = self._measured("clean", [(At(first, 0), At(second, 0))])[0]
        alone = [[clean, *self._alone(name)] for name in (first, second)]
        if self.fill == "additive":
            pair = [[max(self._chance, a + b - clean) for b in alone[1]] for a in alone[0]]
            # Single corruptions keep the measured accuracy, even if it is below chance.
            pair[0] = alone[1]
            for line, value in zip(pair, alone[0], strict=True):
                line[0] = value
        else:
            inner = self._measured(
                f"{first} {second}",
                [(At(first, a), At(second, b)) for a in self._severities() for b in self._severities()],
            )
            size = self.levels
            pair = [alone[1], *([alone[0][i + 1], *inner[size * i : size * (i + 1)]] for i in range(size))]
        across = [_stretched(line, levels) for line in pair]
        return [
            list(line)
            for line in zip(*(_stretched(column, levels) for column in zip(*across, strict=True)), strict=True)
        ]

    def _alone(self, name: str) -> list[float]:
        return self._measured(name, [(At(name, severity), At(name, 0)) for severity in self._severities()])

    def _severities(self) -> list[float]:
        return [_STRONGEST * i / self.levels for i in range(1, self.levels + 1)]

    def _measured(self, name: str, cells: Sequence[tuple[At, At]]) -> list[float]:
        """The accuracy in every cell: from this object, from the cache, or measured now."""
        if name not in self._found:
            key = f"{self._identity} {name} {self.levels}"
            if (found := _numbers(recall(key), len(cells))) is None:
                found = self._measure(name, cells)
                keep(key, json.dumps(found))
            self._found[name] = found
        return self._found[name]

    def _measure(self, name: str, cells: Sequence[tuple[At, At]]) -> list[float]:
        found, count = [], len(self._images)
        for done, (first, second) in enumerate(cells):
            if self.progress is not None:
                self.progress(f"accuracy under {name}", done * count, len(cells) * count)
            found.append(self._accuracy(CorruptedTwice(self._images, first, second, scale=self.scale)))
        if self.progress is not None:
            self.progress(f"accuracy under {name}", len(cells) * count, len(cells) * count)
        return found

    def _accuracy(self, images: CorruptedTwice) -> float:
        weight = next((p for p in self._source.parameters() if p.is_floating_point()), None)
        right = 0
        with torch.inference_mode():
            for part in torch.arange(len(images)).split(100):  # type: ignore[no-untyped-call]
                taken = images.take(part)
                x = taken.floats() if weight is None else taken.floats().to(weight)
                right += int((self._source(x).argmax(1).cpu() == taken.y.cpu()).sum())
        return 100 * right / len(images)

    def _digest(self, source: Classifier) -> str:
        sha = hashlib.sha256(f"{source.digest()} {source} {self.scale} {frost_source()}".encode())
        add_tensor(sha, "x", self._images.x)
        add_tensor(sha, "y", self._images.y)
        return f"accuracy of a source, ctta {__version__}, {sha.hexdigest()}"


def _stretched(values: Sequence[float], levels: int) -> list[float]:
    """Resample equally spaced values at ``levels`` + 1 equally spaced points, by linear interpolation."""
    found = []
    for i in range(levels + 1):
        at = i * (len(values) - 1) / levels
        low = min(int(at), len(values) - 2)
        found.append(values[low] + (values[low + 1] - values[low]) * (at - low))
    return found


def _numbers(text: str | None, count: int) -> list[float] | None:
    """Parse the numbers of a cache entry; None if there is no entry, or it does not have ``count`` numbers."""
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, list) or len(found) != count:
        return None
    return [float(value) for value in found] if all(isinstance(value, (int, float)) for value in found) else None
