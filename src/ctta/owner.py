"""One adapter, one owner."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from ctta.errors import ConcurrentUse


class Owner:
    """A lock that refuses instead of waiting, and does not travel with copies.

    A Ctrl-C can arrive while the lock is being taken or given back. The lock therefore remembers the call that holds
    it, and counts as free once that call is no longer running.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, FrameType]] = {}
        self._taking_over = threading.Lock()

    def __enter__(self) -> None:
        mine = (threading.get_ident(), sys._getframe(1))
        # One operation on a dict, which no other thread and no signal can interrupt.
        if self._held.setdefault("by", mine) is mine:
            return
        with self._taking_over:
            held = self._held.setdefault("by", mine)
            if held is not mine and _is_running(*held):
                raise ConcurrentUse(
                    "An adapter changes with every batch and has one owner; a second thread called it at the same "
                    "time. Give each thread its own adapter, or put a queue in front of this one."
                )
            self._held["by"] = mine

    def __exit__(self, *exc: object) -> None:
        self._held.pop("by", None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Owner:
        return Owner()

    def __reduce__(self) -> tuple[type[Owner], tuple[()]]:
        return Owner, ()


def _is_running(thread: int, call: FrameType) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame is call:
            return True
        frame = frame.f_back
    return False
