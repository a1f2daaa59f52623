"""Ctrl-C and SIGTERM as requests to stop at the next convenient moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Give a list that receives the number of every stop signal.

    A run looks at it between two steps, so that it can save a checkpoint first. A second Ctrl-C stops at once; SIGTERM
    never does, because ending a group of processes may send it several times. Python handles signals in the main
    thread only: in others the list stays empty.
    """
    requests: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return

    def request(number: int, frame: object) -> None:
        if requests and number == signal.SIGINT:
            raise KeyboardInterrupt
        requests.append(number)

    # A shell starts background jobs with Ctrl-C ignored: it stays so.
    wanted = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, request) for number in wanted}
    try:
        yield requests
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
