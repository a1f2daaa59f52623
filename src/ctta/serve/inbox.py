"""The inbox of a stream: a bounded queue of requests, which leave in batches, and of operations, which go first."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from ctta.errors import LearnerStopped, QueueFull, ServiceClosing
from ctta.serve.types import Ask, Limits, Reply

Result = TypeVar("Result")
#: The id, if there is one, and the number of images of some requests.
Named = tuple[tuple[str | None, int], ...]

#: Maximum number of values waiting in one stream, as a multiple of the maximum for one request.
WAITING_PIXELS = 8
#: Number of gaps between arrivals from which the next arrival is expected.
_GAPS = 8


@dataclass
class Request:
    """A request that is waiting for its reply.

    Args:
        ask: The request itself.
        arrived: When it arrived, by the inbox's clock.
        future: Receives the reply.
    """

    ask: Ask
    arrived: float
    future: Future[Reply] = field(default_factory=Future)

    def fail(self, error: BaseException) -> None:
        """Set the error as the result, unless there is a reply already.

        Args:
            error: The error.
        """
        _fail(self.future, error)


@dataclass
class Operation:
    """A function to call on the stream's thread.

    Args:
        do: The function.
        future: Receives its result.
    """

    do: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)

    def run(self, before: Callable[[], None] = lambda: None) -> None:
        """Call the function and set its result, or its exception, on the future.

        Args:
            before: What to do first. If it fails, the operation fails with it, and the error is raised.
        """
        try:
            before()
        except BaseException as error:
            _fail(
                self.future, LearnerStopped(f"The operation was not carried out, because the stream ended: {error!r}.")
            )
            raise
        try:
            result = self.do()
        except BaseException as error:
            _fail(self.future, error)
            if not isinstance(error, Exception):
                raise
        else:
            self.future.set_result(result)


class Inbox:
    """Requests and operations that are waiting for the thread of one stream.

    Args:
        stream: The stream's name.
        limits: How much may wait, and how requests are batched.
        clock: A monotonic clock, in seconds.
        answer_time: Returns how many seconds an answer currently takes.
    """

    def __init__(
        self, stream: str, limits: Limits, clock: Callable[[], float], answer_time: Callable[[], float]
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._clock = clock
        self._answer_time = answer_time
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque()
        self._operations: deque[Operation] = deque()
        self._closing = False
        self._ended = False
        self._stopped_by: BaseException | None = None
        # Whether the stand-in may take requests, and whether it is answering some.
        self._open_to_stand_in = False
        self._stand_in_answers = False
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._last_arrival: float | None = None
        self._pixels = 0
        self.images = 0

    def submit(self, ask: Ask) -> Future[Reply]:
        """Queue a request, or refuse it at once.

        Args:
            ask: The request; the name of its stream is not checked.

        Raises:
            QueueFull: If too much is waiting.
            LearnerStopped: If `stop` was called.
            ServiceClosing: If `close` was called.
        """
        count, pixels = len(ask.images), ask.images.numel()
        with self._changed:
            self._refuse_ended()
            too_many = self.images + count > self._limits.queue
            too_large = self._pixels + pixels > WAITING_PIXELS * self._limits.pixels
            if self._requests and (too_many or too_large):
                raise QueueFull(
                    f"{self.images} images ({self._pixels} numbers) wait in stream {self._stream!r}; at most "
                    f"{self._limits.queue} ({WAITING_PIXELS * self._limits.pixels}) may.",
                    max(0.1, self._answer_time()),
                )
            request = Request(ask, self._clock())
            if self._last_arrival is not None:
                self._gaps.append(request.arrived - self._last_arrival)
            self._last_arrival = request.arrived
            self._requests.append(request)
            self.images += count
            self._pixels += pixels
            self._changed.notify_all()
        return request.future

    def call(self, do: Callable[[], Result]) -> Result:
        """Call a function on the stream's thread, ahead of waiting requests, and return its result.

        Args:
            do: The function; an exception that it raises is raised here.
        """
        operation = Operation(do)
        with self._changed:
            self._refuse_ended()
            self._operations.append(operation)
            self._changed.notify_all()
        result: Result = operation.future.result()
        return result

    def close(self) -> None:
        """Accept nothing more; `next` returns what is waiting and then None."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def stop(self, error: BaseException) -> None:
        """Accept nothing more, and fail everything that is waiting.

        Args:
            error: Why the stream's thread ended.
        """
        with self._changed:
            self._stopped_by = error
            left = [*(r.future for r in self._requests), *(o.future for o in self._operations)]
            self._requests.clear()
            self._operations.clear()
            self.images = self._pixels = 0
            self._changed.notify_all()
        for future in left:
            _fail(future, self._stopped())

    def end(self) -> None:
        """End the stand-in: `next_for_stand_in` returns None from now on."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def stopped_by(self) -> BaseException | None:
        """The error with which the stream's thread ended."""
        return self._stopped_by

    @property
    def has_operation(self) -> bool:
        """Whether an operation is waiting."""
        return bool(self._operations)

    def next(self, idle: float | None) -> list[Request] | Operation | None:
        """Wait for work: an operation, a batch of requests, an empty batch after ``idle`` seconds, or None at the end.

        It has also ended if the stand-in did so with an error.

        Args:
            idle: Seconds without work after which an empty batch is returned; None waits indefinitely.
        """
        with self._changed:
            while True:
                if self._stopped_by is not None:  # by the stand-in
                    return None
                if self._operations:
                    return self._operations.popleft()
                if self._requests:
                    left = self._patience()
                    if left > 0:
                        self._changed.wait(left)
                    elif batch := self._take_batch():
                        return batch
                elif self._closing:
                    return None
                elif not self._changed.wait(idle) and not (self._requests or self._operations):
                    return []

    @contextmanager
    def open_to_stand_in(self) -> Iterator[None]:
        """Let the stand-in answer requests until the block ends; then wait until it has answered what it took."""
        with self._changed:
            self._open_to_stand_in = True
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._open_to_stand_in = False
                while self._stand_in_answers:
                    self._changed.wait()

    def next_for_stand_in(self, may_answer: Callable[[], bool]) -> list[Request] | None:
        """Wait for a batch of requests that the stand-in may answer; return None at the end.

        Calling it again means that the last batch is answered.

        Args:
            may_answer: Returns whether the stand-in may take another batch now.
        """
        with self._changed:
            self._stand_in_answers = False
            self._changed.notify_all()
            while not self._ended and self._stopped_by is None:
                left: float | None = None
                if self._open_to_stand_in and self._requests and may_answer():
                    left = self._patience()
                    if left <= 0 and (batch := self._take_batch()):
                        self._stand_in_answers = True
                        return batch
                    left = max(left, 0.0)
                self._changed.wait(left)
            return None

    def leave_stand_in(self) -> None:
        """Note that the stand-in has ended, in whatever way."""
        with self._changed:
            self._stand_in_answers = False
            self._changed.notify_all()

    def _patience(self) -> float:
        """Return how many more seconds the waiting requests should wait for others."""
        if self._closing or self.images >= self._limits.batch:
            return 0.0
        # Nobody waits for a request that is not expected to arrive in time.
        if len(self._gaps) == _GAPS and statistics.median(self._gaps) > self._limits.wait:
            return 0.0
        return self._limits.wait - (self._clock() - self._requests[0].arrived)

    def _take_batch(self) -> list[Request]:
        """Return the first requests that fit in one batch; one that is larger than a batch is returned alone."""
        batch: list[Request] = []
        images = 0
        while self._requests:
            waiting = self._requests[0].ask.images
            full = images + len(waiting) > self._limits.batch
            if batch and (full or waiting.shape[1:] != batch[0].ask.images.shape[1:]):
                break
            request = self._requests.popleft()
            self.images -= len(waiting)
            self._pixels -= waiting.numel()
            # A client that has disconnected is not answered.
            if request.future.set_running_or_notify_cancel():
                batch.append(request)
                images += len(waiting)
        return batch

    def _refuse_ended(self) -> None:
        if self._stopped_by is not None:
            raise self._stopped()
        if self._closing:
            raise ServiceClosing(f"Stream {self._stream!r} is closing and accepts no more requests.")

    def _stopped(self) -> LearnerStopped:
        return LearnerStopped(f"The thread of stream {self._stream!r} ended with an error: {self._stopped_by!r}.")


def images_of(batch: list[Request]) -> Tensor:
    """Return the images of a batch, in the order of its requests.

    Args:
        batch: The requests.
    """
    return torch.cat([request.ask.images for request in batch])


def named(batch: Sequence[Request]) -> Named:
    """Return the ids and sizes of the requests of a batch.

    Args:
        batch: The requests.
    """
    return tuple((request.ask.id, len(request.ask.images)) for request in batch)


def _fail(future: Future[Any], error: BaseException) -> None:
    # It may have been answered, or cancelled by a client that has disconnected.
    with suppress(Exception):
        future.set_exception(error)
