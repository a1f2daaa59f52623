"""Treat Ctrl-C and SIGTERM as requests to stop at the next safe point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Yield a list to which the number of every stop signal is appended.

    A run checks it between steps, so that it can save a checkpoint first. A second Ctrl-C stops at once; SIGTERM never
    does, because ending a group of processes may send it several times. Python handles signals in the main thread only:
    in other threads the list stays empty.
    """
    requests: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return

    def request(number: int, frame: object) -> None:
        if requests and number == signal.SIGINT:
            raise KeyboardInterrupt
        requests.append(number)

    # Shells start background jobs with Ctrl-C ignored; keep it ignored.
    wanted = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, request) for number in wanted}
    try:
        yield requests
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
