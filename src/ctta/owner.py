"""One adapter, one owner."""

from __future__ import annotations

import threading
from typing import Any

from ctta.errors import ConcurrentUse


class Owner:
    """A lock that refuses instead of waiting, and does not travel with copies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUse(
                "An adapter changes with every batch and has one owner; a second thread called it at the same "
                "time. Give each thread its own adapter, or put a queue in front of this one."
            )

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Owner:
        return Owner()

    def __reduce__(self) -> tuple[type[Owner], tuple[()]]:
        return Owner, ()
