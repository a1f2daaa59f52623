"""Send the numbers of every stream to trackers, on a thread that no request waits for."""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Mapping, Sequence

from ctta.serve.events import Event
from ctta.serve.index import folder_name
from ctta.track import RunName, Target, Tracker, open_tracker

logger = logging.getLogger("ctta")

#: Events of all streams that may wait to be written; the oldest are dropped.
_UNWRITTEN = 10_000
#: The guard's phases as numbers, as in the log of `ctta.Guarded`.
_PHASES = {"ok": 0.0, "cooldown": 1.0, "probation": 2.0}


class Tracking:
    """Tracks each stream as a run of its own, from the start of the service to its end.

    A step of the run is a line of the stream's audit. Lines are numbered over restarts, so that the runs of a stream
    continue each other.

    Args:
        targets: Where to track the streams.
        group: Runs that are shown together; see `RunName`.
        facts: Facts about the service.
    """

    def __init__(self, targets: Sequence[Target], group: str, facts: Mapping[str, object]) -> None:
        self._targets = targets
        self._group = group
        self._facts = dict(facts)
        self._since = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._trackers: dict[str, Tracker | None] = {}
        #: Where streams publish their events.
        self.events: queue.Queue[Event] = queue.Queue(_UNWRITTEN)
        self._closing = threading.Event()
        self._behind = False
        self._thread = threading.Thread(target=self._run, name="ctta-tracking", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is waiting, and end. No stream may publish events any more."""
        self._closing.set()
        self.events.put({})  # the thread may be waiting for an event
        self._thread.join()

    def _run(self) -> None:
        while not (self._closing.is_set() and self.events.empty()):
            if not self._behind and self.events.full():
                self._behind = True
                logger.warning("tracking cannot keep up with the streams; the oldest numbers are dropped")
            event = self.events.get()
            if "n" in event:
                self._write(event)
            elif event.get("do") == "remove":
                _close(self._trackers.pop(event["stream"], None))
        for tracker in self._trackers.values():
            _close(tracker)

    def _write(self, event: Event) -> None:
        stream = event["stream"]
        if stream not in self._trackers:
            self._trackers[stream] = self._open(stream)
        tracker = self._trackers[stream]
        if tracker is not None:
            tracker.log(event["n"], _numbers(event))

    def _open(self, stream: str) -> Tracker | None:
        key = uuid.uuid4().hex[:20]
        try:
            run = RunName(key, f"{folder_name(stream)}_{self._since}_{key[:8]}", self._group)
            tracker = open_tracker(self._targets, run)
        except Exception:
            logger.exception("stream %s cannot be tracked", stream)
            return None
        tracker.describe({"stream": stream, "since": self._since, **self._facts})
        return tracker


def _close(tracker: Tracker | None) -> None:
    if tracker is not None:
        tracker.close(finished=True)


def _numbers(event: Event) -> dict[str, float]:
    """The numbers of an event by the names of the status and the guard's signals."""
    numbers = {name: value for name, value in event.items() if isinstance(value, (int, float)) and name != "n"}
    if event["guard"] in _PHASES:
        numbers["guard"] = _PHASES[event["guard"]]
    numbers["alarm"] = event.get("alarm") is not None
    return {f"stream/{name}": float(value) for name, value in numbers.items()}
