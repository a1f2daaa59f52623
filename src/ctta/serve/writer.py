"""The writer: one thread that turns copies of states into files, so that no stream waits for a disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future


class Writer:
    """Runs jobs one after another on its own thread."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[Callable[[], None], Future[None]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="ctta-writer", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> Future[None]:
        """Queue a job and return its future, which holds the exception if the job fails.

        Args:
            job: The function to call on the writer's thread.
        """
        done: Future[None] = Future()
        self._jobs.put((job, done))
        return done

    def close(self) -> None:
        """Finish every job and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            # A job holds the copy of a whole state: it is released before anyone hears that it is done.
            del item
            error = _error_of(job)
            del job
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)


def _error_of(job: Callable[[], None]) -> Exception | None:
    try:
        job()
    except Exception as error:  # noqa: BLE001, the job's future carries it
        return error
    return None
