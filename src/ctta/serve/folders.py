"""The folders of a service's streams: where they are, which there are, and how one is removed."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from ctta.errors import DamagedStream
from ctta.serve.index import Index, Kind, folder_name, read_index, refuse_other_kind

logger = logging.getLogger("ctta")

#: What folders that are being removed are called. No stream's folder begins with a dot.
_REMOVED = ".removed-"


class Folders:
    """The folders of the streams of one service.

    Args:
        state: The service's state folder.
        record: The folder of recorded images, if images are recorded.
    """

    def __init__(self, state: Path, record: Path | None) -> None:
        self._state = state
        self._streams = state / "streams"
        self._record = record
        self._damaged: set[Path] = set()
        for parent in (self._streams, record):  # what a process that was killed had begun to remove
            for left in () if parent is None else parent.glob(f"{_REMOVED}*"):
                shutil.rmtree(left, ignore_errors=True)

    def of(self, stream: str) -> Path:
        """Return the folder of a stream's snapshots and audit.

        Args:
            stream: The stream's name.
        """
        return self._streams / folder_name(stream)

    def record_of(self, stream: str) -> Path | None:
        """Return the folder of a stream's recorded images, if images are recorded.

        Args:
            stream: The stream's name.
        """
        return None if self._record is None else self._record / folder_name(stream)

    def saved(self, kind: Kind) -> list[Index]:
        """Return the index of every stream on disk.

        Args:
            kind: The method and source of the service.

        Raises:
            MethodMismatch, SourceMismatch: If a stream was adapted by another method or from other weights.
        """
        indices = []
        for folder in sorted(self._streams.glob("*/")):
            try:
                index = read_index(folder)
            except DamagedStream as error:  # requests to this stream are refused; the others go on
                logger.error("%s", error)
                self._damaged.add(folder)
                continue
            if index is not None:
                indices.append(index)
        for index in indices:
            refuse_other_kind(
                index, kind, f"Use another state folder than {self._state}, or move the stream's folder away."
            )
        return indices

    def note_damage(self, stream: str) -> None:
        """Remember that a stream could not be read.

        Args:
            stream: The stream's name.
        """
        self._damaged.add(self.of(stream))

    def damaged(self) -> int:
        """Return how many of the streams that could not be read still cannot."""
        return sum(map(_is_damaged, tuple(self._damaged)))

    def remove(self, stream: str) -> None:
        """Remove everything of a stream. A crash leaves each of its folders either whole or removed.

        Args:
            stream: The stream's name.

        Raises:
            OSError: If the disk refuses. What is left is as it was.
        """
        # The images first: as long as its state is there, the stream is listed and can be removed again.
        for folder in (self.record_of(stream), self.of(stream)):
            if folder is not None and folder.exists():
                _remove(folder)
        logger.info("stream %s: removed", stream)


def _is_damaged(folder: Path) -> bool:
    try:
        read_index(folder)
    except DamagedStream:
        return True
    return False


def _remove(folder: Path) -> None:
    gone = Path(tempfile.mkdtemp(prefix=_REMOVED, dir=folder.parent))
    folder.rename(gone / folder.name)
    try:
        shutil.rmtree(gone)
    except OSError as error:  # it is out of the way, and the next start tries again
        logger.warning("%s could not be deleted: %s", gone, error)
