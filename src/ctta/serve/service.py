"""The service: streams by name, each a lane with its own thread, adapter and history."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.serve.guard import DEFAULT_RULES, Rule
from ctta.serve.types import Ask, LabelReport, Limits, Mode, Reply, SnapshotInfo, StreamStatus


class Service:
    """Answers requests of many streams and learns from them afterwards.

    Args:
        classifier: The source classifier of every stream.
        make: Builds an adapter around it, such as ``ctta.Tent``.
        name: The model's name.
        state: Folder for snapshots and the audit; None keeps both in memory only.
        limits: What is accepted, and how it is batched, learnt and saved.
        mode: The mode in which a new stream starts.
        guard: The rules that stop harmful learning; empty for none.
        class_names: Names of the classes, in order.
        record: Folder in which the images of every learnt batch are kept, for a replay.
        clock: Seconds that never go back, for latency and idle time.
    """

    def __init__(
        self,
        classifier: Classifier,
        make: Callable[[Classifier], Adapter],
        *,
        name: str,
        state: Path | None,
        limits: Limits = Limits(),  # noqa: B008, a frozen value
        mode: Mode = "adapt",
        guard: Sequence[Rule] = DEFAULT_RULES,
        class_names: Sequence[str] | None = None,
        record: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.num_classes = classifier.num_classes
        self.class_names = None if class_names is None else tuple(class_names)
        raise NotImplementedError

    def submit(self, ask: Ask) -> Future[Reply]:
        """Queue a request; the future resolves when its batch is answered, before anything is learnt from it.

        Raises:
            QueueFull: Too many images wait in the stream.
            TooManyStreams: The stream is new and there are `limits.streams` already.
            ImageShape: More images or pixels than the limits allow, or not (N, C, H, W).
            LearnerStopped: The stream's thread ended with an error.
            ServiceClosing: `close` was called.
        """
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether requests are accepted."""
        raise NotImplementedError

    def streams(self) -> list[StreamStatus]:
        """The status of every stream, by name."""
        raise NotImplementedError

    def stream(self, name: str) -> StreamStatus:
        """The status of one stream."""
        raise NotImplementedError

    def set_mode(self, stream: str, mode: Mode) -> None:
        """Change a stream's mode."""
        raise NotImplementedError

    def reset(self, stream: str) -> None:
        """Return a stream to the source."""
        raise NotImplementedError

    def snapshot(self, stream: str, pin: bool = False) -> SnapshotInfo:
        """Take a snapshot now."""
        raise NotImplementedError

    def rollback(self, stream: str, snapshot: str | None = None) -> SnapshotInfo:
        """Return to a snapshot, the last good one unless named."""
        raise NotImplementedError

    def promote(self, stream: str) -> None:
        """In shadow mode, swap the champion and the challenger."""
        raise NotImplementedError

    def labels(self, stream: str, labels: Mapping[str, Sequence[int]]) -> LabelReport:
        """Score earlier answers by request id."""
        raise NotImplementedError

    def state(self, stream: str) -> bytes:
        """A stream's adapter as a checkpoint file."""
        raise NotImplementedError

    def put_state(self, stream: str, data: bytes) -> None:
        """Replace a stream's adapter by a checkpoint file of the same method and source."""
        raise NotImplementedError

    def subscribe(self, stream: str) -> queue.Queue[dict[str, Any]]:
        """A bounded queue of events, one per batch; the oldest are dropped when nobody reads."""
        raise NotImplementedError

    def unsubscribe(self, stream: str, events: queue.Queue[dict[str, Any]]) -> None:
        """Stop an earlier subscription."""
        raise NotImplementedError

    def close(self) -> None:
        """Accept nothing more, answer what was accepted, save every stream, release the folder."""
        raise NotImplementedError
