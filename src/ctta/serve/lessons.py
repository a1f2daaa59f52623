"""Lessons: batches that the stand-in answered, and that the stream's thread has yet to learn from or to note down."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ctta.serve.inbox import Request
from ctta.serve.types import Limits


@dataclass(frozen=True)
class Note:
    """A batch that was answered and is not learnt from.

    Args:
        batch: Its requests.
        shed: Whether it could have been learnt from, but enough was waiting to be learnt.
        see: Whether its images belong in the adapter's window.
    """

    batch: list[Request]
    shed: bool
    see: bool


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
        self._since_accepted = 0

    def __bool__(self) -> bool:
        """Whether anything is left to do."""
        return bool(self._batches or self._notes)

    @property
    def full(self) -> bool:
        """Whether a whole batch is waiting to be learnt from."""
        return self._images >= self._limits.batch

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

    def note(self, batch: list[Request], *, shed: bool = False, see: bool = False) -> None:
        """Leave a batch to be noted down only.

        Args:
            batch: Its requests.
            shed: Whether it could have been learnt from.
            see: Whether its images belong in the adapter's window.
        """
        self._notes.append(Note(batch, shed, see))
        self._since_accepted += int(shed)

    def none_is_owed(self) -> None:
        """Note that the stream's thread learns from a batch that it answered itself."""
        self._since_accepted = 0

    def unseen(self) -> Iterator[tuple[list[Request], bool]]:
        """Yield every batch whose images are not in the adapter's window yet, and whether it is to be learnt from."""
        yield from ((batch, True) for batch in self._batches)
        yield from ((note.batch, False) for note in self._notes if note.see)

    def take(self) -> tuple[list[Note], list[Request]]:
        """Return all notes, and the oldest batches as one, with images of one size and at most as many as a batch has.

        A single batch that is larger is returned alone; the requests are empty if there is nothing to learn from.
        """
        notes, self._notes = self._notes, []
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
