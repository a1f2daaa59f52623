"""A lock for objects that only one call at a time may use."""

from __future__ import annotations

import sys
import threading
import weakref
from types import FrameType
from typing import Any

from ctta.errors import ConcurrentUse


class ExclusiveLock:
    """A lock that raises ConcurrentUse instead of waiting; a copy is a new lock.

    A Ctrl-C can arrive while the lock is being acquired or released. The lock therefore remembers its holder, a call or
    an object, and counts as free once that call has ended or that object is gone.

    Example:
        >>> lock = ExclusiveLock()
        >>> with lock:
        ...     with lock:
        ...         pass
        Traceback (most recent call last):
            ...
        ctta.errors.ConcurrentUse: ...
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, FrameType | weakref.ref[object]]] = {}
        self._taking_over = threading.Lock()

    def hold(self, holder: object) -> None:
        """Acquire the lock for an object, until ``release`` is called or the object is garbage collected.

        Args:
            holder: The object.
        """
        self._take(weakref.ref(holder))

    def release(self, holder: object) -> None:
        """Release the lock if this object holds it.

        Args:
            holder: The object for which it was acquired.
        """
        _, by = self._held.get("by", (0, None))
        if isinstance(by, weakref.ref) and by() is holder:
            self._held.pop("by", None)

    def __enter__(self) -> None:
        self._take(sys._getframe(1))

    def __exit__(self, *exc: object) -> None:
        self._held.pop("by", None)

    def _take(self, holder: FrameType | weakref.ref[object]) -> None:
        mine = (threading.get_ident(), holder)
        # One operation on a dict, which no other thread and no signal can interrupt.
        if self._held.setdefault("by", mine) is mine:
            return
        with self._taking_over:
            held = self._held.setdefault("by", mine)
            if held is not mine and _is_held(*held):
                raise ConcurrentUse(
                    "An adapter changes with every batch and serves one call at a time; it was called while another "
                    "call was running, or while an answer waited for learn() or forget(). Call one of these on the "
                    "answer first. If several threads call, give each its own adapter, or put a queue in front of "
                    "this one."
                )
            self._held["by"] = mine

    def __deepcopy__(self, memo: dict[int, Any]) -> ExclusiveLock:
        return ExclusiveLock()

    def __reduce__(self) -> tuple[type[ExclusiveLock], tuple[()]]:
        return ExclusiveLock, ()


def _is_held(thread: int, holder: FrameType | weakref.ref[object]) -> bool:
    if isinstance(holder, weakref.ref):
        return holder() is not None
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame is holder:
            return True
        frame = frame.f_back
    return False
