"""Events of a stream, for live subscribers."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import Any

#: Events that a subscriber may leave unread; the oldest are dropped.
_UNREAD = 256

Event = dict[str, Any]


class Events:
    """Passes every event to all subscribers without waiting for any of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[queue.Queue[Event]] = []

    @property
    def wanted(self) -> bool:
        """Whether there are subscribers."""
        return bool(self._subscribers)

    def subscribe(self, into: queue.Queue[Event] | None = None) -> queue.Queue[Event]:
        """Return a bounded queue of future events.

        Args:
            into: A bounded queue to use, such as one for several streams; None makes one.
        """
        events: queue.Queue[Event] = queue.Queue(_UNREAD) if into is None else into
        with self._lock:
            self._subscribers.append(events)
        return events

    def unsubscribe(self, events: queue.Queue[Event]) -> None:
        """End a subscription.

        Args:
            events: A queue from `subscribe`; one that is not subscribed is ignored.
        """
        with self._lock:
            if events in self._subscribers:
                self._subscribers.remove(events)

    def publish(self, event: Event) -> None:
        """Send an event to every subscriber.

        Args:
            event: The event.
        """
        with self._lock:
            subscribers = list(self._subscribers)
        for events in subscribers:
            while True:
                try:
                    events.put_nowait(event)
                    break
                except queue.Full:
                    with suppress(queue.Empty):
                        events.get_nowait()
