"""The history of a stream: its snapshots on disk, both the latest and the pinned ones."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ctta._system.files import write_atomically
from ctta.errors import DamagedStream, NoGoodSnapshot, NotACheckpoint, UnknownSnapshot
from ctta.serve.index import Entry, Index, Kind, read_index
from ctta.serve.learner import Learner, Taken
from ctta.serve.types import SnapshotInfo
from ctta.serve.writer import Writer

logger = logging.getLogger("ctta")


class History:
    """The snapshots of one stream.

    Args:
        stream: The stream's name.
        kind: The method and source of its adapter.
        folder: Its folder; it must exist.
        writer: The thread that writes.
        keep: How many snapshots are kept besides the pinned ones.
    """

    def __init__(self, stream: str, kind: Kind, folder: Path, writer: Writer, keep: int) -> None:
        self._stream = stream
        self._kind = kind
        self._folder = folder
        self._writer = writer
        self._keep = keep
        # Guards what readers see, and is never held while the disk is written: replies read it.
        self._lock = threading.Lock()
        # Guards the index on disk.
        self._indexing = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._pending = 0
        self._last: Future[None] | None = None
        #: Snapshots that could not be written.
        self.failures = 0
        found = read_index(folder)
        for entry in () if found is None else found.entries:
            if snapshot_file(folder, entry.info.name).is_file():
                self._entries[entry.info.name] = entry
        if found is not None:
            self._remove_unlisted()
        else:
            # From now on the folder tells what it belongs to, even if the process dies before the first snapshot.
            self._last = writer.do(self._declare)

    def infos(self) -> tuple[SnapshotInfo, ...]:
        """Return every snapshot, oldest first."""
        with self._lock:
            return tuple(entry.info for entry in self._entries.values())

    @property
    def busy(self) -> bool:
        """Whether a snapshot is waiting to be written."""
        return self._pending > 0

    def add(
        self, name: str, taken: Taken, steps: int, health: dict[str, float], *, pin: bool, good: bool
    ) -> SnapshotInfo:
        """Save a snapshot later, on the writer's thread; `last` is then done.

        Args:
            name: Its name.
            taken: The copy of the stream's state.
            steps: Steps learnt.
            health: The guard's signals.
            pin: Whether it is kept permanently.
            good: Whether the guard considers the state good.
        """
        info = SnapshotInfo(name, steps, time.time(), health, pin, good)
        entry = Entry(info, taken.mode, taken.champion is not None)
        with self._lock:
            self._pending += 1
        self._last = self._writer.do(lambda: self._write(entry, taken))
        return info

    @property
    def last(self) -> Future[None] | None:
        """The last `add`, which has its error if it failed."""
        return self._last

    def settle(self) -> None:
        """Wait for the last `add`; an error is logged."""
        if self._last is not None:
            wait([self._last])

    def find(self, name: str) -> Entry:
        """Return the snapshot of this name.

        Args:
            name: The snapshot's name.

        Raises:
            UnknownSnapshot: If there is none.
        """
        with self._lock:
            if name not in self._entries:
                raise UnknownSnapshot(name, self._entries)
            return self._entries[name]

    def find_good(self, steps: int) -> Entry:
        """Return the newest good snapshot from before the last steps.

        Args:
            steps: Steps that the stream has learnt; the snapshot has fewer.

        Raises:
            NoGoodSnapshot: If there is none.
        """
        with self._lock:
            for entry in reversed(self._entries.values()):
                if entry.info.good and entry.info.steps < steps:
                    return entry
        raise NoGoodSnapshot(
            f"A rollback without a name needs a good snapshot with fewer steps than stream {self._stream!r} has now "
            f"({steps}); there is none. Name a snapshot, or reset the stream."
        )

    def newest(self) -> Entry | None:
        """Return the newest snapshot that is on disk."""
        with self._lock:
            return next(reversed(self._entries.values()), None)

    def oldest(self) -> Entry | None:
        """Return the oldest snapshot on disk that is not pinned."""
        with self._lock:
            return next((entry for entry in self._entries.values() if not entry.info.pinned), None)

    def load(self, entry: Entry, learner: Learner) -> None:
        """Load a snapshot into a learner.

        Args:
            entry: The snapshot to load.
            learner: The learner whose state and mode are replaced.
        """
        name = entry.info.name
        champion = champion_file(self._folder, name) if entry.champion else None
        learner.load(snapshot_file(self._folder, name), champion, entry.mode)

    def resume(self, learner: Learner) -> Entry | None:
        """Load the newest complete snapshot into a learner and return it; return None if there is none.

        Args:
            learner: The learner whose state and mode are replaced.

        Raises:
            CheckpointError: If a complete snapshot does not fit the learner.
        """
        with self._lock:
            entries = list(reversed(self._entries.values()))
        for entry in entries:
            try:
                self.load(entry, learner)
            except NotACheckpoint as error:  # an older one may be complete
                logger.warning("snapshot %s of stream %s is damaged: %s", entry.info.name, self._stream, error)
                with self._indexing, self._lock:
                    del self._entries[entry.info.name]
            else:
                return entry
        return None

    def pin(self, name: str, pinned: bool = True) -> SnapshotInfo:
        """Pin or unpin a snapshot.

        Args:
            name: The snapshot's name.
            pinned: True keeps the snapshot regardless of `Limits.keep`; False unpins it.
        """
        with self._indexing:
            before = self.find(name)
            pinned_entry = replace(before, info=replace(before.info, pinned=pinned))
            self._write_index({**self._entries, name: pinned_entry})
            return pinned_entry.info

    def _declare(self) -> None:
        with self._indexing:
            try:
                self._write_index(self._entries)
            except OSError as error:  # the first snapshot writes it again
                logger.error("the index of stream %s could not be written: %s", self._stream, error)

    def _write(self, entry: Entry, taken: Taken) -> None:
        name = entry.info.name
        try:
            if taken.champion is not None:
                write_atomically(champion_file(self._folder, name), taken.champion.serialised())
            write_atomically(snapshot_file(self._folder, name), taken.learner.serialised())
            dropped = self._list(entry)
        except Exception as error:
            self.failures += 1
            logger.error("stream %s could not be saved: %s", self._stream, error)
            if not self._is_listed(name):
                self._remove_files(name)
            raise
        else:
            for old in dropped:
                self._remove_files(old.info.name)
        finally:
            with self._lock:
                self._pending -= 1

    def _list(self, entry: Entry) -> list[Entry]:
        """Add a snapshot to the index and return those that are no longer kept."""
        with self._indexing:
            entries = {**self._entries, entry.info.name: entry}
            loose = [e for e in entries.values() if not e.info.pinned]
            dropped = loose[: max(0, len(loose) - self._keep)]
            for old in dropped:
                del entries[old.info.name]
            self._write_index(entries)
            return dropped

    def _write_index(self, entries: dict[str, Entry]) -> None:
        """Write the index, and then let readers see it."""
        Index(self._stream, self._kind, tuple(entries.values())).write(self._folder)
        with self._lock:
            self._entries = entries

    def _remove_unlisted(self) -> None:
        """Remove files left by a process that was killed before the index listed or dropped them.

        Those that are newer than the index are kept: someone may have restored an older index.
        """
        newest = max(self._entries, default="")
        for file in self._folder.glob("*.safetensors"):
            name = file.name.partition(".")[0]
            if name not in self._entries and name < newest:
                with suppress(OSError):
                    file.unlink()

    def _is_listed(self, name: str) -> bool:
        """Whether the index on disk has a snapshot: it may have been written although an error was raised."""
        with suppress(DamagedStream):
            index = read_index(self._folder)
            return index is not None and any(entry.info.name == name for entry in index.entries)
        return True

    def _remove_files(self, name: str) -> None:
        for file in (snapshot_file(self._folder, name), champion_file(self._folder, name)):
            with suppress(OSError):
                file.unlink(missing_ok=True)


def snapshot_file(folder: Path, name: str) -> Path:
    """Return the file of a snapshot.

    Args:
        folder: The stream's folder.
        name: The snapshot's name.
    """
    return folder / f"{name}.safetensors"


def champion_file(folder: Path, name: str) -> Path:
    """Return the file of a snapshot's champion, which exists if it was taken in shadow mode.

    Args:
        folder: The stream's folder.
        name: The snapshot's name.
    """
    return folder / f"{name}.champion.safetensors"
