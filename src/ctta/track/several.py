"""Several trackers as one, none of which can end the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ctta.track.tracker import Tracker

logger = logging.getLogger("ctta")


class Several:
    """Passes everything to several trackers. One that raises is dropped, and its error logged.

    Args:
        trackers: The trackers, each with a name for the log.
    """

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add facts; see `Tracker.describe`."""
        self._each(lambda tracker: tracker.describe(facts))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log a step; see `Tracker.log`."""
        self._each(lambda tracker: tracker.log(step, numbers))

    def conclude(self, name: str, value: float, step: int) -> None:
        """Log a result; see `Tracker.conclude`."""
        self._each(lambda tracker: tracker.conclude(name, value, step))

    def close(self, *, finished: bool) -> None:
        """Close all; see `Tracker.close`."""
        self._each(lambda tracker: tracker.close(finished=finished))

    def _each(self, do: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                do(tracker)
            except Exception:
                logger.exception("%s failed: the run goes on, and is no longer tracked there", name)
                del self._trackers[name]
