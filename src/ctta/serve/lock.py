"""A lock on a folder: one process at a time owns it."""

from __future__ import annotations

import os
from pathlib import Path

from ctta._system.locks import try_lock
from ctta.errors import StateInUse


class FolderLock:
    """Locks a folder until it is released or the process ends, in whatever way.

    Args:
        folder: The folder; it is created if it does not exist.

    Raises:
        StateInUse: If another process holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file: int | None = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        if not try_lock(self._file):
            self.release()
            raise StateInUse(
                f"Another process serves the streams in {folder}. Stop it, or choose another state folder."
            )

    def release(self) -> None:
        """Release the folder."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
