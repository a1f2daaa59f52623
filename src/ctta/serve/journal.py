"""The journal of a stream: every event goes to the audit and to the subscribers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ctta.serve.audit import Audit, Deed, Line
from ctta.serve.events import Events
from ctta.serve.inbox import Named
from ctta.serve.types import StreamStatus

logger = logging.getLogger("ctta")

#: What an event says about the stream, in addition to what happened.
_TOLD = ("mode", "steps", "guard", "queue", "alpha", "error", "answered", "learnt", "shed", "resets", "latency_ms")


class Journal:
    """Records what happens to one stream. A full disk does not stop it: a failed write is logged and counted.

    Args:
        stream: The stream's name.
        audit: The audit to write to.
        events: The subscribers.
        status: Returns the stream's status.
    """

    def __init__(self, stream: str, audit: Audit, events: Events, status: Callable[[], StreamStatus]) -> None:
        self._stream = stream
        self._audit = audit
        self._events = events
        self._status = status
        #: Lines that could not be written; batches and uploads that could not be recorded.
        self.unwritten = 0
        self.unrecorded = 0

    def next(self) -> int:
        """Return the number of the next line."""
        return self._audit.next()

    def keep(self, n: int, images: Tensor) -> None:
        """Keep the images of a batch, if images are recorded, before its line is written.

        Args:
            n: The number of the batch's line.
            images: The images (N, C, H, W), on the CPU.
        """
        try:
            self._audit.keep(n, images)
        except OSError as error:
            self.unrecorded += 1
            logger.error("the images of line %d of stream %s could not be kept: %s", n, self._stream, error)

    def keep_upload(self, n: int, data: bytes) -> None:
        """Keep an uploaded state, if images are recorded, before its line is written.

        Args:
            n: The number of the upload's line.
            data: The checkpoint file.
        """
        try:
            self._audit.keep_upload(n, data)
        except OSError as error:
            self.unrecorded += 1
            logger.error("the upload of line %d of stream %s could not be kept: %s", n, self._stream, error)

    def write(
        self,
        deed: Deed,
        requests: Named = (),
        *,
        n: int | None = None,
        shed: bool = False,
        alarm: str | None = None,
        snapshot: str | None = None,
        signals: dict[str, float] | None = None,
        rules: str = "",
    ) -> None:
        """Write a line and publish it to the subscribers.

        Args:
            deed: What happened.
            requests: The ids and sizes of the requests concerned.
            n: The number of the line; None takes the next one.
            shed: Whether learning was skipped because requests were waiting.
            alarm: The guard's rule that fired.
            snapshot: The snapshot that was taken or restored.
            signals: The guard's signals.
            rules: The guard's rules, when the stream starts or resumes.
        """
        status = self._status()
        line = Line(
            n=self.next() if n is None else n,
            do=deed,
            time=time.time(),
            mode=status.mode,
            steps=status.steps,
            requests=requests,
            shed=shed,
            guard=status.guard,
            alarm=alarm,
            snapshot=snapshot,
            signals=signals or {},
            rules=rules,
        )
        try:
            self._audit.write(line)
        except OSError as error:
            self.unwritten += 1
            logger.error("line %d of the audit of stream %s could not be written: %s", line.n, self._stream, error)
        images = sum(count for _, count in line.requests)
        named = {} if snapshot is None else {"snapshot": snapshot}
        self.tell({"do": deed, "n": line.n, "alarm": alarm, "images": images, **named, **line.signals})

    def forget(self, snapshot: int) -> None:
        """Delete old lines if there are too many, as long as a replay can start from a snapshot.

        Args:
            snapshot: The number of the snapshot's line.
        """
        try:
            self._audit.forget(snapshot)
        except OSError as error:
            logger.error("old lines of the audit of stream %s could not be deleted: %s", self._stream, error)

    def tell(self, event: dict[str, Any]) -> None:
        """Publish an event to the subscribers without writing it.

        Args:
            event: What happened.
        """
        if self._events.wanted:
            status = self._status()
            told = {name: getattr(status, name) for name in _TOLD}
            self._events.publish({"stream": self._stream, **told, "snapshot": status.last_snapshot, **event})

    def close(self) -> None:
        """Close the file."""
        self._audit.close()
