"""Requests by id: which were offered to learning before, and how right their answers were once labels come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ctta.errors import LabelError
from ctta.serve.types import LabelReport


@dataclass
class _Answered:
    classes: tuple[int, ...] | None
    taught: bool
    wrong: int | None = None


class Requests:
    """The last requests of a stream by id.

    Args:
        size: How many are remembered; the oldest are forgotten first.
        classes: The number of classes.
    """

    def __init__(self, size: int, classes: int) -> None:
        self._size = size
        self._num_classes = classes
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._wrong = 0
        self.labelled = 0

    def taught(self, name: str) -> bool:
        """Return whether a request with this id was offered to learning before.

        Args:
            name: The request's id.
        """
        found = self._answered.get(name)
        return found is not None and found.taught

    def remember(self, name: str, logits: Tensor | None, taught: bool) -> None:
        """Keep the answer to a request.

        Args:
            name: The request's id.
            logits: Its answer; None if it is not known any more.
            taught: Whether the request was offered to learning.
        """
        earlier = self._answered.pop(name, None)
        classes = None if logits is None else tuple(logits.argmax(1).tolist())
        if earlier is not None and earlier.wrong is not None:
            # The first answer counts: a repeated one may have learnt from the same images.
            earlier.taught = earlier.taught or taught
            self._answered[name] = earlier
            return
        first = classes if earlier is None or earlier.classes is None else earlier.classes
        self._answered[name] = _Answered(first, taught or (earlier is not None and earlier.taught))
        while len(self._answered) > self._size:
            self._answered.popitem(last=False)

    @property
    def error(self) -> float | None:
        """The error over all labelled images in percent."""
        return 100 * self._wrong / self.labelled if self.labelled else None

    def label(self, labels: Mapping[str, Sequence[int]]) -> LabelReport:
        """Score answers.

        Args:
            labels: The classes of the images of a request, by its id. Labels given again replace the earlier ones.

        Raises:
            LabelError: A label is not a class of the model. Nothing is scored.
        """
        for name, classes in labels.items():
            bad = [
                c for c in classes if isinstance(c, bool) or not isinstance(c, int) or not 0 <= c < self._num_classes
            ]
            if bad:
                raise LabelError(
                    f"Labels must be whole numbers from 0 to {self._num_classes - 1}; request {name!r} has {bad[0]!r}."
                )
        unknown = []
        for name, classes in labels.items():
            found = self._answered.get(name)
            if found is None or found.classes is None or len(found.classes) != len(classes):
                unknown.append(name)
                continue
            wrong = sum(a != b for a, b in zip(found.classes, classes, strict=True))
            if found.wrong is None:
                self.labelled += len(classes)
            self._wrong += wrong - (found.wrong or 0)
            found.wrong = wrong
        return LabelReport(self.error, self.labelled, tuple(unknown))
