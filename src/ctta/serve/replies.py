"""Replies: which requests of a batch may be learnt from, and to each its own rows or its error."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from ctta.errors import CttaError, LearnerStopped
from ctta.serve.history import History
from ctta.serve.inbox import Request
from ctta.serve.labels import Requests
from ctta.serve.meter import Meter
from ctta.serve.types import Reply

logger = logging.getLogger("ctta")


class Replies:
    """Sends the replies of one stream, from any thread.

    Args:
        stream: The stream's name.
        clock: A monotonic clock, in seconds.
        requests: The requests that the stream remembers.
        history: The stream's snapshots.
        meter: The stream's counters.
    """

    def __init__(
        self, stream: str, clock: Callable[[], float], *, requests: Requests, history: History, meter: Meter
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._requests = requests
        self._history = history
        self._meter = meter

    def divide(self, batch: list[Request]) -> tuple[list[Request], list[Request]]:
        """Return the requests to learn from, which ask for it and whose id is new, and the others.

        Args:
            batch: The requests.
        """
        new: list[Request] = []
        others: list[Request] = []
        names: set[str] = set()
        for request in batch:
            name = request.ask.id
            known = name is not None and (name in names or self._requests.offered(name))
            if request.ask.learn and not known:
                new.append(request)
                names |= {name} if name is not None else set()
            else:
                others.append(request)
        return new, others

    def send(self, batch: list[Request], logits: Tensor, *, steps: int, offered: bool, learnt: bool = False) -> None:
        """Send each request its own rows.

        Args:
            batch: The requests.
            logits: The predictions for their images, in order.
            steps: Steps learnt by the adapter that predicted.
            offered: Whether the requests count as offered for learning.
            learnt: Whether the adapter is going to learn from them.
        """
        rows = torch.split(logits.detach().float().cpu(), [len(request.ask.images) for request in batch])
        now = self._clock()
        newest, reading = self._history.newest(), self._meter.read()
        snapshot = None if newest is None else newest.info.name
        for request, own in zip(batch, rows, strict=True):
            self._meter.add_answer(len(own), now - request.arrived)
            if request.ask.id is not None:
                self._requests.remember(request.ask.id, own, offered)
        for request, own in zip(batch, rows, strict=True):
            reply = Reply(own.clone(), steps, reading.mode, snapshot, learnt)
            request.future.set_result(reply)

    def fail(self, batch: list[Request], error: BaseException) -> None:
        """Give the error to every request that has no reply; raise it if it must end the stream.

        Args:
            batch: The requests.
            error: What happened while they were served.
        """
        self._meter.add_failure()
        failure = error
        ends = not isinstance(error, Exception)
        if ends:
            failure = LearnerStopped(f"The thread of stream {self._stream!r} ended: {error!r}.")
        elif not isinstance(error, CttaError):
            logger.error("stream %s could not answer a batch", self._stream, exc_info=error)
        for request in batch:
            request.fail(failure)
        if ends:
            raise error
