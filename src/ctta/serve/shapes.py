"""Which image shapes a network accepts: each is tried once, so that a wrong one never reaches a batch."""

from __future__ import annotations

import threading
from collections import OrderedDict

import torch

from ctta._checks.images import channel_count
from ctta.classifier import Classifier
from ctta.errors import CttaError, ImageShape
from ctta.trial import copy_to_try

_REMEMBERED = 256


class Shapes:
    """Remembers for each image shape whether the network accepts it.

    Args:
        classifier: The source classifier.
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._lock = threading.Lock()
        self._trying = threading.Lock()
        self._found: OrderedDict[tuple[int, ...], str | None] = OrderedDict()

    def known(self, shape: tuple[int, ...]) -> bool:
        """Return whether a shape was checked before, so that `check` returns at once.

        Args:
            shape: Channels, height and width.
        """
        return shape in self._found

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a shape that the network does not accept. The first time, a copy of it is tried on a black image.

        Args:
            shape: Channels, height and width.

        Raises:
            ImageShape: If the network does not accept it.
        """
        known, reason = self._recall(shape)
        if not known:
            with self._trying:  # one at a time; a shape that is known does not wait for it
                known, reason = self._recall(shape)
                if not known:
                    reason = self._try(shape)
                    self._remember(shape, reason)
        if reason is not None:
            if shape[0] != channels_of(self._classifier) == shape[2]:
                reason = (
                    f'{reason.rstrip(".")}. If the channels come last, give the input the parameter "layout": "NHWC".'
                )
            raise ImageShape(
                f"The model does not accept images with {channel_count(shape[0])} and {shape[1]} x {shape[2]} pixels: "
                f"{reason}"
            )

    def _recall(self, shape: tuple[int, ...]) -> tuple[bool, str | None]:
        with self._lock:
            return shape in self._found, self._found.get(shape)

    def _remember(self, shape: tuple[int, ...], reason: str | None) -> None:
        with self._lock:
            self._found[shape] = reason
            while len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)

    def _try(self, shape: tuple[int, ...]) -> str | None:
        copied, black = copy_to_try(self._classifier, torch.zeros(1, *shape))
        try:
            with torch.inference_mode():
                copied(black)
        except CttaError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001, a network may refuse a shape in any way
            return str(error).strip().split("\n")[0][:200]
        return None


def channels_of(classifier: Classifier) -> int:
    """Return how many channels a network's images have, or -1 if that is not known.

    Args:
        classifier: The classifier.
    """
    return -1 if classifier.channels is None else classifier.channels
