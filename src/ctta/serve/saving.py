"""The saving of an operation's result, which the caller waits for, and not the stream's thread."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from ctta.errors import NotSaved
from ctta.serve.audit import Deed
from ctta.serve.types import SnapshotInfo

#: What took effect, in the error that it could not be saved.
_RESULTS: dict[Deed, str] = {
    "mode": "The new mode",
    "reset": "The reset",
    "promote": "The promotion",
    "put": "The uploaded state",
    "rollback": "The rollback",
}


@dataclass(frozen=True)
class Saving:
    """An operation that has taken effect, and whose result is being written.

    Args:
        stream: The stream's name.
        deed: The operation's name in the audit.
        info: The snapshot that was taken, or for a rollback the one that was restored.
        written: Is done when the result is on disk.
    """

    stream: str
    deed: Deed
    info: SnapshotInfo
    written: Future[None] | None

    def wait(self) -> SnapshotInfo:
        """Wait for the disk, so that a crash does not undo the operation, and return the snapshot.

        Raises:
            NotSaved: If the result could not be written.
        """
        try:
            if self.written is not None:
                self.written.result()
        except Exception as error:
            reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__  # without the path
            if self.deed == "snapshot":
                raise NotSaved(
                    f"The snapshot of stream {self.stream!r} could not be written ({reason}). Free space on the disk "
                    "of the state folder and take it again."
                ) from error
            raise NotSaved(
                f"{_RESULTS[self.deed]} of stream {self.stream!r} is in effect, but could not be saved ({reason}): if "
                "the process is killed, it is lost. Free space on the disk of the state folder and take a snapshot."
            ) from error
        return self.info
