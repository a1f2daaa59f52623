"""The history of a stream: its snapshots, the last ones and the pinned ones, on disk or in memory."""

from __future__ import annotations

import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ctta._system.files import write_atomically
from ctta.errors import UnknownSnapshot
from ctta.serve.audit import write_index
from ctta.serve.learner import Learner, Taken
from ctta.serve.types import MODES, Mode, SnapshotInfo

logger = logging.getLogger("ctta")

INDEX = "snapshots.json"
_LONGEST = 100


@dataclass(frozen=True)
class Entry:
    """A snapshot as the index keeps it.

    Args:
        info: The part of the snapshot's description that users see.
        mode: The stream's mode when the snapshot was taken.
        champion: Whether a champion was saved with it, as in shadow mode.
    """

    info: SnapshotInfo
    mode: Mode
    champion: bool


class Writer:
    """One thread that turns copies of states into files, so that no stream waits for a disk."""

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
            try:
                job()
            except Exception as error:  # noqa: BLE001, whoever waits for the job gets it
                done.set_exception(error)
            else:
                done.set_result(None)


class History:
    """The snapshots of one stream.

    Args:
        stream: The stream's name.
        folder: Its folder; it must exist.
        writer: The thread that writes.
        keep: How many snapshots are kept besides the pinned ones.
    """

    def __init__(self, stream: str, folder: Path, writer: Writer, keep: int) -> None:
        self._stream = stream
        self._folder = folder
        self._writer = writer
        self._keep = keep
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._pending = 0
        self.failed: str | None = None
        self.failures = 0
        for entry in read_index(folder):
            if self._file(entry.info.name).is_file():
                self._entries[entry.info.name] = entry

    def infos(self) -> tuple[SnapshotInfo, ...]:
        """Every snapshot, oldest first."""
        with self._lock:
            return tuple(entry.info for entry in self._entries.values())

    @property
    def busy(self) -> bool:
        """Whether a snapshot waits to be written."""
        return self._pending > 0

    def add(
        self, name: str, taken: Taken, steps: int, health: dict[str, float], *, pin: bool, good: bool
    ) -> SnapshotInfo:
        """Save a snapshot later, on the writer's thread; `wait` tells when.

        Args:
            name: Its name.
            taken: The copy of the stream's state.
            steps: Steps learnt.
            health: The guard's signals.
            pin: Whether it is kept for good.
            good: Whether the guard has no complaint.
        """
        info = SnapshotInfo(name, steps, time.time(), health, pin, good)
        entry = Entry(info, taken.mode, taken.champion is not None)
        with self._lock:
            self._pending += 1
        self._last = self._writer.do(lambda: self._write(entry, taken))
        return info

    def wait(self) -> None:
        """Wait for the last `add`, and raise what went wrong with it."""
        self._last.result()

    def find(self, name: str | None) -> Entry:
        """Return the snapshot of this name.

        Args:
            name: The snapshot's name; None means the newest good one.

        Raises:
            UnknownSnapshot: There is none.
        """
        with self._lock:
            if name is not None and name in self._entries:
                return self._entries[name]
            good = [entry for entry in self._entries.values() if entry.info.good]
            if name is None and good:
                return good[-1]
            raise UnknownSnapshot(name or "last good", self._entries)

    def newest(self) -> Entry | None:
        """The newest snapshot."""
        with self._lock:
            return next(reversed(self._entries.values()), None)

    def load(self, entry: Entry, learner: Learner) -> None:
        """Load a snapshot into a learner.

        Args:
            entry: The snapshot to load.
            learner: The learner whose state and mode are replaced.
        """
        name = entry.info.name
        learner.load(self._file(name), self._champion(name) if entry.champion else None, entry.mode)

    def resume(self, learner: Learner) -> Entry | None:
        """Load the newest readable snapshot into a learner and return it; return None if there is none.

        Args:
            learner: The learner whose state and mode are replaced.
        """
        with self._lock:
            entries = list(reversed(self._entries.values()))
        for entry in entries:
            try:
                self.load(entry, learner)
            except Exception as error:  # noqa: BLE001, an older one may be whole
                logger.warning("snapshot %s of stream %s cannot be used: %s", entry.info.name, self._stream, error)
                with self._lock:
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
        entry = self.find(name)
        with self._lock:
            self._entries[name] = replace(entry, info=replace(entry.info, pinned=pinned))
            write_index(self._folder / INDEX, self._index())
            return self._entries[name].info

    def _write(self, entry: Entry, taken: Taken) -> None:
        name = entry.info.name
        try:
            if taken.champion is not None:
                write_atomically(self._champion(name), taken.champion.serialised())
            write_atomically(self._file(name), taken.learner.serialised())
            with self._lock:
                before = dict(self._entries)
                self._entries[name] = entry
                loose = [e for e in self._entries.values() if not e.info.pinned]
                dropped = loose[: max(0, len(loose) - self._keep)]
                for old in dropped:
                    del self._entries[old.info.name]
                try:
                    write_index(self._folder / INDEX, self._index())
                except BaseException:
                    self._entries = before
                    raise
        except Exception as error:
            self.failed = str(error)
            self.failures += 1
            logger.error("stream %s could not be saved: %s", self._stream, error)
            raise
        else:
            self.failed = None
            for old in dropped:
                self._file(old.info.name).unlink(missing_ok=True)
                self._champion(old.info.name).unlink(missing_ok=True)
        finally:
            with self._lock:
                self._pending -= 1

    def _index(self) -> dict[str, Any]:
        entries = [{**asdict(e.info), "mode": e.mode, "champion": e.champion} for e in self._entries.values()]
        return {"stream": self._stream, "snapshots": entries}

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.safetensors"

    def _champion(self, name: str) -> Path:
        return self._folder / f"{name}.champion.safetensors"


def read_index(folder: Path) -> list[Entry]:
    """Return the snapshots listed in a stream's folder; an empty list if the index is missing or damaged.

    Args:
        folder: The stream's folder.
    """
    try:
        content = json.loads((folder / INDEX).read_bytes())
        return [_entry(fields) for fields in content["snapshots"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, OSError) as error:
        logger.warning("%s is damaged and not used: %s", folder / INDEX, error)
        return []


def stream_of(folder: Path) -> str | None:
    """Return the name of the stream that a folder belongs to; None if its index is missing or damaged.

    Args:
        folder: The stream's folder.
    """
    try:
        name = json.loads((folder / INDEX).read_bytes())["stream"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def folder_name(stream: str) -> str:
    """Return a safe folder name for a stream, whatever characters its name has.

    Args:
        stream: The stream's name.
    """
    safe = quote(stream, safe="").replace(".", "%2E")
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_LONGEST]}-{hashlib.sha256(stream.encode()).hexdigest()[:16]}"


def _entry(fields: dict[str, Any]) -> Entry:
    mode, champion = fields.pop("mode"), fields.pop("champion")
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}")
    return Entry(SnapshotInfo(**fields), mode, bool(champion))
