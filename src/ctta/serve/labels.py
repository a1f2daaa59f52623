"""Requests by id: which were offered for learning before, and the error of their predictions once labels arrive."""

from __future__ import annotations

import reprlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ctta.errors import LabelError
from ctta.serve.types import LabelReport


@dataclass
class _Answered:
    classes: tuple[int, ...] | None
    wrong: int | None = None


class Requests:
    """The last requests of a stream by id, for any thread.

    Args:
        size: How many are remembered, of those offered for learning and of the others; the oldest are forgotten first.
        classes: The number of classes.
    """

    def __init__(self, size: int, classes: int) -> None:
        self._size = size
        self._num_classes = classes
        self._lock = threading.Lock()
        # Apart, so that requests that only ask cannot displace those that were offered for learning.
        self._offered: OrderedDict[str, _Answered] = OrderedDict()
        self._asked: OrderedDict[str, _Answered] = OrderedDict()
        self._wrong = 0
        self._labelled = 0

    def offered(self, name: str) -> bool:
        """Return whether a request with this id was offered for learning before.

        Args:
            name: The request's id.
        """
        with self._lock:
            return name in self._offered

    def remember(self, name: str, logits: Tensor | None, offered: bool) -> None:
        """Remember the prediction for a request.

        Args:
            name: The request's id.
            logits: Its prediction; None if it is no longer known.
            offered: Whether the request was offered for learning.
        """
        classes = None if logits is None else tuple(logits.argmax(1).tolist())
        with self._lock:
            # A request that only asks does not take over the id of one that was offered.
            memory = self._offered if offered or name in self._offered else self._asked
            if offered:
                self._forget(self._asked.pop(name, None))
            earlier = memory.pop(name, None) or _Answered(None)
            # The first prediction counts: for a later one, the adapter may have learnt from the same images.
            earlier.classes = classes if earlier.classes is None else earlier.classes
            memory[name] = earlier
            while len(memory) > self._size:
                memory.popitem(last=False)

    def _forget(self, found: _Answered | None) -> None:
        """Take the labels of a request back."""
        if found is not None and found.classes is not None and found.wrong is not None:
            self._labelled -= len(found.classes)
            self._wrong -= found.wrong

    def report(self, unknown: Sequence[str] = ()) -> LabelReport:
        """Return the error over all labelled images.

        Args:
            unknown: Ids that could not be scored.
        """
        error = 100 * self._wrong / self._labelled if self._labelled else None
        return LabelReport(error, self._labelled, tuple(unknown))

    def label(self, labels: Mapping[str, Sequence[int]]) -> LabelReport:
        """Score predictions.

        Args:
            labels: The classes of the images of a request, by its id. Labels given again replace the earlier ones.

        Raises:
            LabelError: If a label is not a class of the model. Nothing is scored.
        """
        for name, classes in labels.items():
            self._refuse_other_classes(name, classes)
        unknown = []
        with self._lock:
            for name, classes in labels.items():
                found = self._offered.get(name) or self._asked.get(name)
                if found is None or found.classes is None or len(found.classes) != len(classes):
                    unknown.append(name)
                    continue
                wrong = sum(a != b for a, b in zip(found.classes, classes, strict=True))
                if found.wrong is None:
                    self._labelled += len(classes)
                self._wrong += wrong - (found.wrong or 0)
                found.wrong = wrong
            return self.report(unknown)

    def _refuse_other_classes(self, name: str, classes: Sequence[int]) -> None:
        for c in classes:
            if isinstance(c, bool) or not isinstance(c, int) or not 0 <= c < self._num_classes:
                raise LabelError(
                    f"Labels must be whole numbers from 0 to {self._num_classes - 1}; request {reprlib.repr(name)} has "
                    f"{reprlib.repr(c)}."
                )
