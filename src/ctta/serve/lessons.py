"""Lessons: batches that the stand-in answered, and that the stream's thread has yet to learn from or to note down."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ctta.serve.inbox import WAITING_PIXELS, Named, Request, images_of, named
from ctta.serve.types import Limits

#: Notes that may wait; each is small.
_MOST_NOTES = 10_000


@dataclass(frozen=True)
class Note:
    """A batch that was answered and is not learnt from.

    Args:
        requests: The id and the number of images of its requests.
        shed: Whether it could have been learnt from, but enough was waiting to be learnt.
        images: Its images, if they belong in the adapter's window.
    """

    requests: Named
    shed: bool
    images: Tensor | None


class Lessons:
    """What the stand-in leaves to the stream's thread. They use it in turns, never at once.

    Args:
        limits: The size of a batch, and the share of batches to learn from.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._batches: deque[list[Request]] = deque()
        self._notes: list[Note] = []
        self._images = 0
        self._noted_images = self._noted_values = 0
        self._since_accepted = 0

    def __bool__(self) -> bool:
        """Whether anything is left to do."""
        return bool(self._batches or self._notes)

    @property
    def full(self) -> bool:
        """Whether a whole batch is waiting to be learnt from."""
        return self._images >= self._limits.batch

    @property
    def crowded(self) -> bool:
        """Whether too much is waiting to be noted down, as happens when the stream's thread hangs."""
        too_many = self._noted_images >= self._limits.queue or len(self._notes) >= _MOST_NOTES
        return too_many or self._noted_values >= WAITING_PIXELS * self._limits.pixels

    @property
    def owed(self) -> bool:
        """Whether the next batch must be learnt from, because of the share."""
        return (self._since_accepted + 1) * self._limits.learn_share >= 1

    def accept(self, batch: list[Request]) -> None:
        """Leave a batch to be learnt from.

        Args:
            batch: Its requests, with images of one size.
        """
        self._batches.append(batch)
        self._images += _images(batch)
        self._since_accepted = 0

    def note(self, batch: list[Request], *, shed: bool = False, images: Tensor | None = None) -> None:
        """Leave a batch to be noted down only.

        Args:
            batch: Its requests, whose images are not kept.
            shed: Whether it could have been learnt from.
            images: Its images, if they belong in the adapter's window.
        """
        self._notes.append(Note(named(batch), shed, images))
        if images is not None:
            self._noted_images += len(images)
            self._noted_values += images.numel()
        self._since_accepted += int(shed)

    def none_is_owed(self) -> None:
        """Note that the stream's thread learns from a batch that it answered itself."""
        self._since_accepted = 0

    def unseen(self) -> Iterator[tuple[Tensor, bool]]:
        """Yield the images that are not in the adapter's window yet, and whether they are to be learnt from."""
        yield from ((images_of(batch), True) for batch in self._batches)
        yield from ((note.images, False) for note in self._notes if note.images is not None)

    def take(self) -> tuple[list[Note], list[Request]]:
        """Return all notes, and the oldest batches as one, with images of one size and at most as many as a batch has.

        A single batch that is larger is returned alone; the requests are empty if there is nothing to learn from.
        """
        notes, self._notes = self._notes, []
        self._noted_images = self._noted_values = 0
        merged: list[Request] = []
        images = 0
        while self._batches:
            batch = self._batches[0]
            count = _images(batch)
            if merged and (images + count > self._limits.batch or _shape(batch) != _shape(merged)):
                break
            merged += self._batches.popleft()
            images += count
        self._images -= images
        return notes, merged


def _images(batch: list[Request]) -> int:
    return sum(len(request.ask.images) for request in batch)


def _shape(batch: list[Request]) -> tuple[int, ...]:
    return tuple(batch[0].ask.images.shape[1:])
