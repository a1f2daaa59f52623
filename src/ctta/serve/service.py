"""The service: streams by name, each a lane with its own thread, adapter and history."""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import DamagedStream, ParameterError, ServiceClosing, TooManyStreams, UnknownLane, WrongMode
from ctta.guard import DEFAULT_RULES, Rule
from ctta.guarded import Guarded
from ctta.serve.checks import check_ask, check_limits, check_stream, count_classes
from ctta.serve.events import Event, Events
from ctta.serve.folders import Folders
from ctta.serve.index import Kind
from ctta.serve.lane import Lane
from ctta.serve.learner import Learner
from ctta.serve.lock import FolderLock
from ctta.serve.opening import open_lane
from ctta.serve.sharing import SharedReference, share
from ctta.serve.tracking import Tracking
from ctta.serve.types import MODES, Ask, LabelReport, Limits, Mode, Reply, SnapshotInfo, StreamStatus
from ctta.serve.writer import Writer
from ctta.track import Target, check_targets

CLOSING = "The service is closing and accepts no more requests."


class Service:
    """Answers requests of many streams and learns from them afterwards.

    Args:
        classifier: The source classifier of every stream.
        make: Builds an adapter around it, such as ``ctta.Tent``.
        name: The model's name.
        state: Folder for snapshots and the audit; None uses a temporary one, which `close` removes.
        limits: What the service accepts, and how it batches, learns and saves.
        mode: The mode in which a new stream starts.
        guard: The rules that stop harmful learning; empty for none.
        class_names: Names of the classes, in order.
        record: Folder in which the images of every learnt batch are kept, for a replay. Needs ``state``.
        track: Where to send the numbers of every batch.
        clock: A monotonic clock in seconds, for latency and idle time.

    Raises:
        HeadNotFound: If the classifier has no linear head, which gives the number of classes.
        ParameterError: If a limit or another argument does not fit.
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
        track: Sequence[Target] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if record is not None and state is None:
            raise ParameterError("Recorded images are of use together with the audit: record needs a state folder.")
        check_limits(limits)
        check_targets(track)
        self.name = name
        self.num_classes = count_classes(classifier)
        self.class_names = None if class_names is None else tuple(class_names)
        self.limits = limits
        self._mode = mode
        self._rules = "; ".join(map(str, guard))
        self._clock = clock
        self._classifier = classifier
        self._make = make
        self._temporary = None if state is not None else tempfile.TemporaryDirectory(prefix="ctta-serve-")
        folder = state if state is not None else Path(self._temporary.name if self._temporary else "")
        self._lanes: dict[str, Lane] = {}
        self._replacing: set[str] = set()
        self._changing = threading.Lock()
        self._closed = False
        self._lock = FolderLock(folder)
        self._writer = Writer()
        self._tracking: Tracking | None = None
        try:
            self._folders = Folders(folder, record)
            self._template = make(classifier)
            self._kind = Kind(type(self._template).__name__.lower(), self._template.source_digest)
            if track:
                facts = {"model": name, "method": self._kind.method, "source": self._kind.source, "guard": self._rules}
                self._tracking = Tracking(track, f"ctta-serve-{name}", facts)
            self._reference = SharedReference(share(make(classifier), self._template))
            for index in self._folders.saved(self._kind):
                self._lanes[index.stream] = self._open(index.stream)
        except BaseException:
            self.close()
            raise

    def __contains__(self, stream: str) -> bool:
        """Whether there is a stream of this name."""
        with self._changing:
            return stream in self._lanes

    def submit(self, ask: Ask) -> Future[Reply]:
        """Queue a request; the future resolves when its batch is answered, before anything is learnt from it.

        Args:
            ask: The request; a stream with a new name is created.

        Raises:
            QueueFull: If too many images are waiting in the stream.
            TooManyStreams: If the stream is new and there are already `limits.streams`.
            InputError: If there are more images or pixels than allowed, or not finite floats (N, C, H, W) in [0, 1].
            ParameterError: If the stream's name or the id is too long.
            LearnerStopped: If the stream's thread ended with an error.
            ServiceClosing: If `close` was called.
        """
        check_ask(ask, self.limits)
        return self._lane(ask.stream).submit(ask)

    def ready(self) -> bool:
        """Whether requests are accepted, and no stream's thread has ended with an error."""
        with self._changing:
            return not self._closed and not any(lane.stopped for lane in self._lanes.values())

    def streams(self) -> list[StreamStatus]:
        """Return the status of every stream, sorted by name."""
        with self._changing:
            lanes = [self._lanes[name] for name in sorted(self._lanes)]
        return [lane.status() for lane in lanes]

    def damaged(self) -> int:
        """Return how many streams on disk cannot be read: they are not listed, and requests to them are refused."""
        return self._folders.damaged()

    def stream(self, name: str) -> StreamStatus:
        """Return the status of one stream.

        Args:
            name: The name of an existing stream.
        """
        return self._known(name).status()

    def set_mode(self, stream: str, mode: Mode) -> None:
        """Change a stream's mode.

        Args:
            stream: The name of an existing stream.
            mode: The new mode: "adapt", "frozen" or "shadow".

        Raises:
            ParameterError: If there is no such mode.
        """
        if mode not in MODES:
            raise ParameterError(f"A mode is one of {', '.join(MODES)}. Got {mode!r} instead.")
        self._known(stream).set_mode(mode)

    def reset(self, stream: str) -> None:
        """Return a stream to the source.

        Args:
            stream: The name of an existing stream.
        """
        self._known(stream).reset()

    def snapshot(self, stream: str, pin: bool = False) -> SnapshotInfo:
        """Take a snapshot now and wait until it is written.

        Args:
            stream: The name of an existing stream.
            pin: Whether to keep the snapshot regardless of `Limits.keep`.
        """
        return self._known(stream).snapshot(pin)

    def pin(self, stream: str, snapshot: str, pinned: bool = True) -> SnapshotInfo:
        """Pin or unpin a snapshot.

        Args:
            stream: The name of an existing stream.
            snapshot: The snapshot's name.
            pinned: Whether to keep it regardless of `Limits.keep`.

        Raises:
            UnknownSnapshot: If there is no such snapshot.
        """
        return self._known(stream).pin(snapshot, pinned)

    def rollback(self, stream: str, snapshot: str | None = None) -> SnapshotInfo:
        """Return to a snapshot. The stream's mode stays.

        Args:
            stream: The name of an existing stream.
            snapshot: The snapshot's name; None means the newest good one with fewer steps than the stream has now.

        Raises:
            UnknownSnapshot, NoGoodSnapshot: If there is no such snapshot.
        """
        return self._known(stream).rollback(snapshot)

    def promote(self, stream: str) -> None:
        """In shadow mode, swap the champion and the challenger.

        Args:
            stream: The name of an existing stream.

        Raises:
            WrongMode: If the stream is in another mode.
        """
        self._known(stream).promote()

    def restart(self, stream: str) -> None:
        """Restart a stream whose thread ended with an error, from its newest snapshot.

        Args:
            stream: The name of an existing stream.

        Raises:
            WrongMode: If the stream is running, or is being restarted or removed.
        """
        with self._replaced(stream) as lane:
            if not lane.stopped:
                raise WrongMode(f"Stream {stream!r} is running; only a stream that has stopped can be restarted.")
            lane.join()
            with self._changing:
                if self._closed:
                    raise ServiceClosing(CLOSING)
                self._lanes[stream] = self._open(stream, lane.events)

    def evict(self, stream: str) -> None:
        """Move a stream to disk until its next request.

        Args:
            stream: The name of an existing stream.
        """
        self._known(stream).evict()

    def labels(self, stream: str, labels: Mapping[str, Sequence[int]]) -> LabelReport:
        """Score earlier predictions by request id.

        Args:
            stream: The name of an existing stream.
            labels: For each request id, the class index of every image of the request, in order.

        Raises:
            LabelError: If a label is not a class of the model.
        """
        return self._known(stream).label(dict(labels))

    def state(self, stream: str) -> bytes:
        """Return a stream's adapter as the content of a checkpoint file, which ``Adapter.load`` reads.

        Args:
            stream: The name of an existing stream.
        """
        return self._known(stream).state()

    def put_state(self, stream: str, data: bytes) -> None:
        """Replace a stream's adapter (in shadow mode, the challenger) with a checkpoint of the same method and source.

        Args:
            stream: The stream's name; a stream with a new name is created.
            data: The content of the checkpoint file.

        Raises:
            CheckpointError: If it is not a checkpoint, or belongs to another method or source. Nothing changes.
        """
        check_stream(stream)
        if stream not in self:
            self._new_learner().put(data)  # a state that is refused must not create a stream
        self._lane(stream).put(data)

    def remove(self, stream: str) -> None:
        """Remove a stream with its snapshots, its audit and its recorded images, after its last replies.

        Args:
            stream: The name of an existing stream. A later request with this name starts from the source.

        Raises:
            OSError: If the disk refuses. The next request resumes from the newest snapshot.
        """
        with self._replaced(stream) as lane:
            try:
                lane.discard()
                self._folders.remove(stream)
            finally:
                with self._changing:
                    del self._lanes[stream]

    def subscribe(self, stream: str) -> queue.Queue[Event]:
        """Return a bounded queue of a stream's events; the oldest are dropped when it is full.

        Args:
            stream: The name of an existing stream.
        """
        return self._known(stream).subscribe()

    def unsubscribe(self, stream: str, events: queue.Queue[Event]) -> None:
        """End a subscription.

        Args:
            stream: The name of an existing stream.
            events: The queue that `subscribe` returned.
        """
        with suppress(UnknownLane):  # it may have been removed
            self._known(stream).unsubscribe(events)

    def close(self) -> None:
        """Accept nothing more, answer what was accepted, save every stream, and release the folder."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.close()
        for lane in lanes:
            lane.join()
        if self._tracking is not None:
            self._tracking.close()
        self._writer.close()
        self._lock.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    @contextmanager
    def _replaced(self, name: str) -> Iterator[Lane]:
        """Yield the lane of a stream that is restarted or removed; meanwhile nobody else may do that."""
        with self._changing:
            if name not in self._lanes:
                raise UnknownLane(name, self._lanes)
            if name in self._replacing:
                raise WrongMode(f"Stream {name!r} is being restarted or removed.")
            self._replacing.add(name)
            lane = self._lanes[name]
        try:
            yield lane
        finally:
            with self._changing:
                self._replacing.remove(name)

    def _known(self, name: str) -> Lane:
        with self._changing:
            if name not in self._lanes:
                raise UnknownLane(name, self._lanes)
            return self._lanes[name]

    def _lane(self, name: str) -> Lane:
        with self._changing:
            if self._closed:
                raise ServiceClosing(CLOSING)
            if name not in self._lanes:
                if len(self._lanes) >= self.limits.streams:
                    raise TooManyStreams(
                        f"The service has {len(self._lanes)} streams, as many as it may; {name!r} would be another."
                    )
                self._lanes[name] = self._open(name)
            return self._lanes[name]

    def _open(self, name: str, events: Events | None = None) -> Lane:
        try:
            lane = open_lane(
                name,
                self._new_learner,
                folders=self._folders,
                kind=self._kind,
                writer=self._writer,
                limits=self.limits,
                classes=self.num_classes,
                mode=self._mode,
                events=events,
                clock=self._clock,
            )
        except DamagedStream:
            self._folders.note_damage(name)
            raise
        if self._tracking is not None and events is None:
            lane.subscribe(self._tracking.events)
        return lane

    def _new_learner(self) -> Learner:
        adapter = share(self._make(self._classifier), self._template)
        return Learner(Guarded(adapter, rules=self._rules, reference=self._reference))
