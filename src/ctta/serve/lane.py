"""A lane: a bounded queue and one thread that owns one stream's adapter."""

from __future__ import annotations

import logging
import queue
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ctta._adapter.checkpoint import serialised
from ctta.adapter import Step
from ctta.errors import CttaError, LearnerStopped, QueueFull, ServiceClosing
from ctta.serve.audit import Audit, Deed, Line
from ctta.serve.history import History
from ctta.serve.labels import Requests
from ctta.serve.learner import Learner
from ctta.serve.types import Ask, LabelReport, Limits, Mode, Reply, SnapshotInfo, StreamStatus

logger = logging.getLogger("ctta")

Result = TypeVar("Result")

_LATENCIES = 256
_EVENTS = 256
#: Names under which the logs of methods have their momentum.
_ALPHA = "alpha"


@dataclass
class _Request:
    ask: Ask
    future: Future[Reply]
    arrived: float


@dataclass
class _Operation:
    do: Callable[[], Any]
    future: Future[Any]


@dataclass
class _Counts:
    answered: int = 0
    learnt: int = 0
    shed: int = 0
    resets: int = 0
    failures: int = 0


class Lane:
    """One stream.

    Args:
        name: The stream's name.
        make: Builds its learner, as new. It is called on the lane's own thread.
        limits: How requests are batched, learnt and saved.
        history: Its snapshots.
        audit: Where everything is written down.
        requests: The requests it remembers.
        mode: The mode in which a new stream starts.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._make = make
        self._limits = limits
        self._history = history
        self._audit = audit
        self._requests = requests
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._operations: deque[_Operation] = deque()
        self._images = 0
        self._closing = False
        self._dead: BaseException | None = None
        self._subscribers: list[queue.Queue[dict[str, Any]]] = []
        self._learner: Learner | None = None
        self._mode: Mode = mode
        self._steps = self._skipped = 0
        self._since_learnt = self._since_saved = 0
        self._unsaved = False
        self._counts = _Counts()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self._seen: dict[str, float] = {}
        self._guard = "ok"
        self._last_snapshot: str | None = None
        newest = history.newest()
        if newest is not None:
            self._last_snapshot = newest.info.name
            self._steps = newest.info.steps
            self._mode = newest.mode
        self._thread = threading.Thread(target=self._run, name=f"ctta-lane-{name}", daemon=True)
        self._thread.start()

    # Any thread.

    def submit(self, ask: Ask) -> Future[Reply]:
        """Queue a request, or refuse it at once.

        Args:
            ask: The request; the name of its stream is not checked.
        """
        images = len(ask.images)
        with self._changed:
            self._refuse_ended()
            if self._images and self._images + images > self._limits.queue:
                raise QueueFull(
                    f"{self._images} images wait in stream {self.name!r}; at most {self._limits.queue} may.",
                    self._retry_after(),
                )
            request = _Request(ask, Future(), self._clock())
            self._waiting.append(request)
            self._images += images
            self._changed.notify_all()
        return request.future

    def call(self, do: Callable[[], Result]) -> Result:
        """Call a function on the lane's thread, ahead of waiting requests, and return its result.

        Args:
            do: The function; an exception that it raises is raised here.
        """
        operation = _Operation(do, Future())
        with self._changed:
            self._refuse_ended()
            self._operations.append(operation)
            self._changed.notify_all()
        result: Result = operation.future.result()
        return result

    def set_mode(self, mode: Mode) -> None:
        """Change the mode.

        Args:
            mode: The new mode.
        """
        self.call(lambda: self._operate("mode", lambda learner: learner.set_mode(mode)))

    def promote(self) -> None:
        """Swap champion and challenger."""
        self.call(lambda: self._operate("promote", Learner.promote))

    def reset(self) -> None:
        """Return to the source."""
        self.call(lambda: self._operate("reset", Learner.reset))

    def put(self, data: bytes) -> None:
        """Replace the adapter's state by a checkpoint.

        Args:
            data: The content of a checkpoint file of the same method and source.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.safetensors"
            path.write_bytes(data)
            self.call(lambda: self._operate("put", lambda learner: learner.put(path)))

    def state(self) -> bytes:
        """The adapter as a checkpoint file, without its guard; in shadow mode the champion."""

        def state() -> bytes:
            learner = self._awake()
            return serialised(learner.champion or learner.adapter.inner)

        return self.call(state)

    def snapshot(self, pin: bool) -> SnapshotInfo:
        """Take a snapshot and wait until it is written.

        Args:
            pin: Whether to keep the snapshot regardless of `Limits.keep`.
        """
        return self.call(lambda: self._save(pin=pin, wait=True))

    def rollback(self, name: str | None) -> SnapshotInfo:
        """Return to a snapshot.

        Args:
            name: The snapshot's name; None means the newest good one.
        """
        return self.call(lambda: self._rollback(name))

    def evict(self) -> None:
        """Move the adapter to disk until the next request."""
        self.call(self._evict)

    def label(self, labels: dict[str, Sequence[int]]) -> LabelReport:
        """Score earlier predictions.

        Args:
            labels: For each request id, the class index of every image of the request, in order.
        """
        with self._changed:
            return self._requests.label(labels)

    def subscribe(self) -> queue.Queue[dict[str, Any]]:
        """A bounded queue of events."""
        events: queue.Queue[dict[str, Any]] = queue.Queue(_EVENTS)
        with self._changed:
            self._subscribers.append(events)
        return events

    def unsubscribe(self, events: queue.Queue[dict[str, Any]]) -> None:
        """End a subscription.

        Args:
            events: A queue from `subscribe`; one that is not subscribed is ignored.
        """
        with self._changed:
            if events in self._subscribers:
                self._subscribers.remove(events)

    def close(self) -> None:
        """Accept nothing more. The thread answers what waits, saves and ends; `join` waits for it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    @property
    def resident(self) -> bool:
        """Whether the adapter is in memory."""
        return self._learner is not None

    def status(self) -> StreamStatus:
        """What is known about the stream."""
        with self._changed:
            latencies, seen, counts = list(self._latencies), dict(self._seen), self._counts
            return StreamStatus(
                name=self.name,
                mode=self._mode,
                steps=self._steps,
                skipped=self._skipped,
                queue=self._images,
                last_snapshot=self._last_snapshot,
                snapshots=self._history.infos(),
                entropy=seen.get("entropy"),
                alpha=seen.get(_ALPHA),
                diversity=seen.get("diversity"),
                agreement=seen.get("agreement"),
                loss=seen.get("loss"),
                resets=counts.resets,
                guard=self._guard,
                error=self._requests.error,
                labelled=self._requests.labelled,
                answered=counts.answered,
                learnt=counts.learnt,
                shed=counts.shed,
                latency_ms=1000 * statistics.median(latencies) if latencies else None,
                failures=counts.failures,
                unsaved=self._history.failures,
            )

    def _refuse_ended(self) -> None:
        if self._dead is not None:
            raise LearnerStopped(f"The thread of stream {self.name!r} ended with an error: {self._dead!r}.")
        if self._closing:
            raise ServiceClosing("The service is closing and accepts no more requests.")

    def _retry_after(self) -> float:
        """Seconds until about half of what waits now is answered."""
        recent = statistics.median(self._latencies) if self._latencies else 1.0
        return max(0.1, recent)

    # The lane's thread.

    def _run(self) -> None:
        try:
            while (work := self._next()) is not None:
                if isinstance(work, _Operation):
                    _finish(work.future, work.do)
                elif work:
                    self._serve(work)
                else:
                    self._evict()
            self._end()
        except BaseException as error:
            logger.exception("stream %s stopped", self.name)
            with self._changed:
                self._dead = error
                left = [*(r.future for r in self._waiting), *(o.future for o in self._operations)]
                self._waiting.clear()
                self._operations.clear()
            for future in left:
                with suppress(Exception):
                    future.set_exception(LearnerStopped(f"The thread of stream {self.name!r} ended: {error!r}."))
        finally:
            self._audit.close()

    def _next(self) -> list[_Request] | _Operation | None:
        """An operation, a batch of requests, an empty batch when the lane is idle, or None at the end."""
        with self._changed:
            while True:
                if self._operations:
                    return self._operations.popleft()
                if self._waiting:
                    left = self._patience()
                    if left <= 0:
                        return self._take_batch()
                    self._changed.wait(left)
                elif self._closing:
                    return None
                elif self._limits.idle is None or self._learner is None:
                    self._changed.wait()
                elif not self._changed.wait(self._limits.idle) and not (self._waiting or self._operations):
                    return []

    def _patience(self) -> float:
        """Seconds that the waiting requests should still wait for company."""
        if self._closing or self._images >= self._limits.batch:
            return 0.0
        return self._limits.wait - (self._clock() - self._waiting[0].arrived)

    def _take_batch(self) -> list[_Request]:
        """The first requests that fit in one batch; one that is larger than a batch comes alone."""
        taken: list[_Request] = []
        images = 0
        while self._waiting:
            request = self._waiting[0]
            count = len(request.ask.images)
            fits = not taken or (
                images + count <= self._limits.batch and request.ask.images.shape[1:] == taken[0].ask.images.shape[1:]
            )
            if not fits:
                break
            self._waiting.popleft()
            self._images -= count
            # A client that has gone away is not answered.
            if request.future.set_running_or_notify_cancel():
                taken.append(request)
                images += count
        return taken

    def _serve(self, batch: list[_Request]) -> None:
        try:
            learner = self._awake()
            teach = self._teachers(batch)
            probes = [request for request in batch if not any(request is other for other in teach)]
            if probes:
                self._answer(probes, learner.predict(_images(probes)), taught=False)
                if not teach:
                    self._write("answer", probes)
            if teach:
                self._teach(learner, teach)
        except Exception as error:
            if not isinstance(error, CttaError):
                logger.exception("stream %s could not answer a batch", self.name)
            self._counts.failures += 1
            for request in batch:
                if not request.future.done():
                    request.future.set_exception(error)

    def _teachers(self, batch: list[_Request]) -> list[_Request]:
        """The requests that may be learnt: those that ask for it and whose id is new."""
        teach: list[_Request] = []
        names: set[str] = set()
        for request in batch:
            name = request.ask.id
            known = name is not None and (name in names or self._requests.taught(name))
            if request.ask.learn and not known:
                teach.append(request)
                names |= {name} if name is not None else set()
        return teach

    def _teach(self, learner: Learner, batch: list[_Request]) -> None:
        x = _images(batch)
        learns = learner.can_learn(len(x))
        shed = learns and self._sheds()
        if not learns or shed:
            self._answer(batch, learner.predict(x), taught=learner.mode != "frozen" and shed)
            self._see(learner, batch, x, shed)
            return
        if learner.champion is not None:
            self._answer(batch, learner.predict(x), taught=True, learnt=True)
            step = self._try(lambda: learner.learn(x))
        else:
            offered = learner.adapter.watch.learns()
            answer = learner.ask(x)
            self._answer(batch, answer.logits, taught=True, learnt=offered)
            step = self._try(answer.learn)
        if step is None:
            self._write("answer", batch)
        else:
            self._learnt(learner, batch, x, step)

    def _sheds(self) -> bool:
        """Whether the next batch is answered only, because others wait and enough was learnt."""
        with self._changed:
            owed = (self._since_learnt + 1) * self._limits.learn_share >= 1
            shed = bool(self._waiting) and not owed
            self._since_learnt = self._since_learnt + 1 if shed else 0
            return shed

    def _answer(self, batch: list[_Request], logits: Tensor, *, taught: bool, learnt: bool = False) -> None:
        """Send every request its own rows."""
        logits = logits.detach().float().cpu()
        now = self._clock()
        rows = torch.split(logits, [len(request.ask.images) for request in batch])
        with self._changed:
            for request, own in zip(batch, rows, strict=True):
                self._counts.answered += len(own)
                self._latencies.append(now - request.arrived)
                if request.ask.id is not None:
                    self._requests.remember(request.ask.id, own, taught)
        for request, own in zip(batch, rows, strict=True):
            reply = Reply(own.clone(), self._steps, self._mode, self._last_snapshot, learnt)
            request.future.set_result(reply)

    def _try(self, learn: Callable[[], Step]) -> Step | None:
        """Learn; the adapter is unchanged if that fails, and the stream goes on."""
        try:
            return learn()
        except Exception:
            logger.exception("stream %s could not learn from a batch", self.name)
            self._counts.failures += 1
            return None

    def _learnt(self, learner: Learner, batch: list[_Request], x: Tensor, step: Step) -> None:
        n = self._audit.next()
        self._audit.keep(n, x)
        adapter = learner.adapter
        signals = {} if adapter.signals is None else adapter.signals.values()
        with self._changed:
            self._counts.learnt += 1
            self._counts.resets += int(adapter.verdict.restore is not None) + int(step.log.get("teacher_reset", 0))
            self._seen |= signals
            if _ALPHA in step.log:
                self._seen[_ALPHA] = float(step.log[_ALPHA])
        self._refresh(learner)
        self._unsaved = True
        self._since_saved += 1
        self._line(n, "learn", batch, alarm=adapter.verdict.alarm, signals=signals)
        if self._since_saved >= self._limits.save_every and not self._history.busy:
            self._save(pin=False, wait=False)

    def _see(self, learner: Learner, batch: list[_Request], x: Tensor, shed: bool) -> None:
        if shed:
            self._counts.shed += 1
        if learner.adapter.inner._window is None:
            self._write("answer", batch, shed=shed)
            return
        learner.see(x)
        n = self._audit.next()
        self._audit.keep(n, x)
        self._unsaved = True
        self._line(n, "see", batch, shed=shed)

    def _awake(self) -> Learner:
        """The learner, built or read from disk if it is not in memory."""
        if self._learner is None:
            learner = self._make()
            found = self._history.resume(learner)
            if found is None:
                learner.set_mode(self._mode)
            self._learner = learner
            self._last_snapshot = None if found is None else found.info.name
            self._refresh(learner)
            self._line(self._audit.next(), "start" if found is None else "resume", snapshot=self._last_snapshot)
        return self._learner

    def _operate(self, deed: Deed, do: Callable[[Learner], None]) -> None:
        learner = self._awake()
        do(learner)
        if deed == "reset":
            self._counts.resets += 1
        self._refresh(learner)
        # An operation is saved before it is reported done, so that a crash does not undo it.
        info = self._save(pin=False, wait=False, deed=deed)
        self._wait_for_disk()
        logger.info("stream %s: %s, snapshot %s", self.name, deed, info.name)

    def _rollback(self, name: str | None) -> SnapshotInfo:
        learner = self._awake()
        self._wait_for_disk()
        entry = self._history.find(name)
        self._history.load(entry, learner)
        self._counts.resets += 1
        self._refresh(learner)
        self._line(self._audit.next(), "rollback", snapshot=entry.info.name)
        self._save(pin=False, wait=False)
        self._wait_for_disk()
        return entry.info

    def _save(self, *, pin: bool, wait: bool, deed: Deed = "snapshot") -> SnapshotInfo:
        learner = self._awake()
        n = self._audit.next()
        name, good = f"{n:08d}", learner.adapter.watch.phase == "ok"
        health = {key: float(value) for key, value in self._seen.items()}
        taken = learner.take()
        self._line(n, deed, snapshot=name)
        info = self._history.add(name, taken, self._steps, health, pin=pin, good=good)
        self._since_saved, self._unsaved = 0, False
        if wait:
            self._history.wait()
        self._last_snapshot = name
        return info

    def _wait_for_disk(self) -> None:
        # What went wrong is logged; the stream goes on without the snapshot.
        if self._history.busy:
            with suppress(Exception):
                self._history.wait()

    def _evict(self) -> None:
        """Let go of the adapter, if its state is on disk."""
        if self._learner is None:
            return
        if self._unsaved:
            self._save(pin=False, wait=False)
        try:
            if self._history.busy:
                self._history.wait()
        except Exception:  # noqa: BLE001, logged by the history; the adapter stays in memory
            self._unsaved = True
            return
        self._learner = None
        self._publish({"do": "evict"})

    def _end(self) -> None:
        if self._learner is not None and self._unsaved:
            self._save(pin=False, wait=False)
        self._wait_for_disk()

    def _refresh(self, learner: Learner) -> None:
        with self._changed:
            self._mode = learner.mode
            self._steps, self._skipped = learner.adapter.steps, learner.adapter.skipped
            self._guard = learner.adapter.watch.phase if learner.adapter.watch.rules else "off"

    def _write(self, deed: Deed, batch: list[_Request], *, shed: bool = False) -> None:
        self._line(self._audit.next(), deed, batch, shed=shed)

    def _line(
        self,
        n: int,
        deed: Deed,
        batch: Sequence[_Request] = (),
        *,
        shed: bool = False,
        alarm: str | None = None,
        snapshot: str | None = None,
        signals: dict[str, float] | None = None,
    ) -> None:
        requests = tuple((request.ask.id, len(request.ask.images)) for request in batch)
        line = Line(
            n, deed, time.time(), self._mode, self._steps, requests, shed, self._guard, alarm, snapshot, signals or {}
        )
        try:
            self._audit.write(line)
        except OSError as error:
            logger.error("the audit of stream %s could not be written: %s", self.name, error)
        self._publish(
            {"do": deed, "n": n, "alarm": alarm, "images": sum(count for _, count in requests), **line.signals}
        )

    def _publish(self, event: dict[str, Any]) -> None:
        with self._changed:
            if not self._subscribers:
                return
            subscribers = list(self._subscribers)
        status = self.status()
        event = {
            "stream": self.name,
            "mode": status.mode,
            "steps": status.steps,
            "guard": status.guard,
            "queue": status.queue,
            "alpha": status.alpha,
            "error": status.error,
            "answered": status.answered,
            "learnt": status.learnt,
            "shed": status.shed,
            "resets": status.resets,
            "latency_ms": status.latency_ms,
            "snapshot": status.last_snapshot,
            **event,
        }
        for events in subscribers:
            while True:
                try:
                    events.put_nowait(event)
                    break
                except queue.Full:
                    with suppress(queue.Empty):
                        events.get_nowait()


def _images(batch: list[_Request]) -> Tensor:
    return torch.cat([request.ask.images for request in batch])


def _finish(future: Future[Any], do: Callable[[], Any]) -> None:
    try:
        result = do()
    except Exception as error:  # noqa: BLE001, the caller gets it
        future.set_exception(error)
    else:
        future.set_result(result)
