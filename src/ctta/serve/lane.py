"""A lane: one stream with its inbox, one thread that owns its adapter, and one that answers while the first learns."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from ctta._adapter.checkpoint import Capture, capture
from ctta.serve.audit import Audit
from ctta.serve.batches import Batches
from ctta.serve.double import Double
from ctta.serve.events import Event, Events
from ctta.serve.history import History
from ctta.serve.inbox import Inbox, Operation
from ctta.serve.journal import Journal
from ctta.serve.keeper import Keeper
from ctta.serve.labels import Requests
from ctta.serve.learner import Learner
from ctta.serve.lessons import Lessons
from ctta.serve.meter import ALPHA, Meter
from ctta.serve.replies import Replies
from ctta.serve.saving import Saving
from ctta.serve.stand_in import StandIn
from ctta.serve.types import Ask, LabelReport, Limits, Mode, Reply, SnapshotInfo, StreamStatus

logger = logging.getLogger("ctta")

#: Characters of an error that the status shows.
_LONGEST_ERROR = 300


class Lane:
    """One stream. Every method may be called from any thread; the work is done on the lane's own.

    Args:
        name: The stream's name.
        make: Builds a new learner. It is called on the lane's own thread.
        limits: How the stream batches, learns and saves.
        history: Its snapshots.
        audit: The audit in which every event is recorded.
        requests: The requests it remembers.
        mode: The mode in which a new stream starts.
        events: The subscribers of the lane that this one replaces; None starts without any.
        clock: Seconds, for latency and idle time.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Learner],
        *,
        limits: Limits,
        history: History,
        audit: Audit,
        requests: Requests,
        mode: Mode,
        events: Events | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._limits = limits
        self._history = history
        self._requests = requests
        self._discarded = False
        # One operation at a time waits for the disk: each holds a copy of the whole state.
        self._operating = threading.Lock()
        newest = history.newest()
        self._meter = Meter(mode) if newest is None else Meter(newest.mode, newest.info.steps)
        self.events = Events() if events is None else events
        self._inbox = Inbox(name, limits, clock, self._meter.answer_time)
        self._journal = Journal(name, audit, self.events, self.status)
        self._keeper = Keeper(
            name,
            make,
            history=history,
            journal=self._journal,
            meter=self._meter,
            mode=mode,
            save_every=limits.save_every,
        )
        # With a share of 1 the stream is strictly in order: no answer before everything earlier is learnt.
        double = Double() if limits.learn_share < 1 else None
        self._lessons = Lessons(limits)
        replies = Replies(name, clock, requests=requests, history=history, meter=self._meter)
        self._batches = Batches(
            name,
            keeper=self._keeper,
            inbox=self._inbox,
            replies=replies,
            double=double,
            lessons=self._lessons,
            journal=self._journal,
            meter=self._meter,
        )
        self._threads = [threading.Thread(target=self._run, name=f"ctta-lane-{name}", daemon=True)]
        if double is not None:
            stand_in = StandIn(name, double=double, inbox=self._inbox, lessons=self._lessons, replies=replies)
            self._threads += [threading.Thread(target=stand_in.run, name=f"ctta-stand-in-{name}", daemon=True)]
        for thread in self._threads:
            thread.start()

    def submit(self, ask: Ask) -> Future[Reply]:
        """Queue a request, or refuse it at once.

        Args:
            ask: The request; the name of its stream is not checked.
        """
        return self._inbox.submit(ask)

    def set_mode(self, mode: Mode) -> None:
        """Change the mode.

        Args:
            mode: The new mode.
        """
        self._operate(lambda: self._keeper.operate("mode", lambda learner: learner.set_mode(mode)))

    def promote(self) -> None:
        """Swap champion and challenger."""
        self._operate(lambda: self._keeper.operate("promote", Learner.promote))

    def reset(self) -> None:
        """Return to the source."""
        self._operate(lambda: self._keeper.operate("reset", Learner.reset))

    def put(self, data: bytes) -> None:
        """Replace the adapter's state with a checkpoint; in shadow mode, the challenger's.

        Args:
            data: The content of a checkpoint file of the same method and source.
        """
        self._operate(lambda: self._keeper.operate("put", lambda learner: learner.put(data), data))

    def state(self) -> bytes:
        """Return the adapter as a checkpoint file, without its guard; in shadow mode the champion."""

        def copied() -> Capture:
            learner = self._keeper.awake()
            return capture(learner.champion or learner.adapter.inner)

        return self._inbox.call(copied).serialised()

    def snapshot(self, pin: bool) -> SnapshotInfo:
        """Take a snapshot and wait until it is written.

        Args:
            pin: Whether to keep the snapshot regardless of `Limits.keep`.
        """
        return self._operate(lambda: self._keeper.snapshot(pin))

    def pin(self, name: str, pinned: bool) -> SnapshotInfo:
        """Pin or unpin a snapshot.

        Args:
            name: The snapshot's name.
            pinned: Whether to keep it regardless of `Limits.keep`.
        """
        info = self._history.pin(name, pinned)
        logger.info("stream %s: snapshot %s %s", self.name, name, "pinned" if pinned else "unpinned")
        return info

    def rollback(self, name: str | None) -> SnapshotInfo:
        """Return to a snapshot.

        Args:
            name: The snapshot's name; None means the newest good one with fewer steps than now.
        """
        return self._operate(lambda: self._keeper.rollback(name))

    def evict(self) -> None:
        """Move the adapter to disk until the next request."""
        self._inbox.call(self._keeper.evict)

    def label(self, labels: dict[str, Sequence[int]]) -> LabelReport:
        """Score earlier predictions.

        Args:
            labels: For each request id, the class index of every image of the request, in order.
        """
        return self._requests.label(labels)

    def subscribe(self, into: queue.Queue[Event] | None = None) -> queue.Queue[Event]:
        """Return a bounded queue of events.

        Args:
            into: A bounded queue to use, such as one for several streams; None makes one.
        """
        return self.events.subscribe(into)

    def unsubscribe(self, events: queue.Queue[Event]) -> None:
        """End a subscription.

        Args:
            events: A queue from `subscribe`; one that is not subscribed is ignored.
        """
        self.events.unsubscribe(events)

    def close(self) -> None:
        """Accept nothing more. The threads answer what is waiting, save and end; `join` waits for them."""
        self._inbox.close()

    def discard(self) -> None:
        """Accept nothing more, answer what is waiting, and end without saving, so that the files may be removed."""
        self._discarded = True
        self.close()
        self.join()
        self._history.settle()
        self._journal.tell({"do": "remove"})

    def join(self) -> None:
        """Wait for the threads to end."""
        for thread in self._threads:
            thread.join()

    @property
    def resident(self) -> bool:
        """Whether the adapter is in memory."""
        return self._keeper.learner is not None

    @property
    def stopped(self) -> bool:
        """Whether the thread ended with an error."""
        return self._inbox.stopped_by is not None

    def status(self) -> StreamStatus:
        """Return what is known about the stream."""
        reading, infos, error = self._meter.read(), self._history.infos(), self._requests.report()
        return StreamStatus(
            name=self.name,
            mode=reading.mode,
            steps=reading.steps,
            skipped=reading.skipped,
            queue=self._inbox.images,
            last_snapshot=infos[-1].name if infos else None,
            snapshots=infos,
            entropy=reading.seen.get("entropy"),
            alpha=reading.seen.get(ALPHA),
            diversity=reading.seen.get("diversity"),
            agreement=reading.seen.get("agreement"),
            loss=reading.seen.get("loss"),
            resets=reading.resets,
            guard=reading.guard,
            error=error.error,
            labelled=error.labelled,
            answered=reading.answered,
            learnt=reading.learnt,
            shed=reading.shed,
            latency_ms=None if reading.latency is None else 1000 * reading.latency,
            failures=reading.failures,
            unsaved=self._history.failures,
            unaudited=self._journal.unwritten,
            unrecorded=self._journal.unrecorded,
            stopped=repr(self._inbox.stopped_by)[:_LONGEST_ERROR] if self.stopped else None,
        )

    def _operate(self, do: Callable[[], Saving]) -> SnapshotInfo:
        """Carry out an operation on the lane's thread, and wait here until its result is on disk.

        Raises:
            NotSaved: If the operation took effect, but could not be saved.
        """
        with self._operating:
            return self._inbox.call(do).wait()

    def _run(self) -> None:
        try:
            while True:
                if self._lessons and not self._inbox.has_operation:
                    self._batches.catch_up(open_to_stand_in=True)
                    continue
                work = self._inbox.next(self._limits.idle if self.resident else None)
                if work is None:
                    break
                if isinstance(work, Operation):
                    # What was answered before the operation is learnt before it.
                    work.run(before=self._batches.catch_up)
                    self._batches.follow()
                elif work:
                    self._batches.serve(work)
                else:
                    self._keeper.evict()
                    self._batches.follow()
                del work  # it holds images, or the copy of a whole state, and more work may be long in coming
            if not self._discarded:
                self._batches.catch_up()
                self._keeper.save_changes()
        except BaseException as error:
            logger.exception("stream %s stopped", self.name)
            self._inbox.stop(error)
        finally:
            self._inbox.end()
            self._history.settle()
            self._journal.close()
