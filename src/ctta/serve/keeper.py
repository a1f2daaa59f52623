"""The keeper of a stream's learner: it is in memory while in use, on disk when idle, and in snapshots."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ctta.errors import NotACheckpoint
from ctta.serve.audit import Deed
from ctta.serve.history import History
from ctta.serve.journal import Journal
from ctta.serve.learner import Learner
from ctta.serve.meter import Meter
from ctta.serve.saving import Saving
from ctta.serve.types import Mode, SnapshotInfo

logger = logging.getLogger("ctta")


class Keeper:
    """Builds, saves, restores and evicts the learner of one stream. Only the stream's thread uses it.

    Args:
        stream: The stream's name.
        make: Builds a new learner.
        history: The stream's snapshots.
        journal: The journal in which every event is recorded.
        meter: The stream's counters.
        mode: The mode in which a new stream starts.
        save_every: Learnt batches between two snapshots.
    """

    def __init__(
        self,
        stream: str,
        make: Callable[[], Learner],
        *,
        history: History,
        journal: Journal,
        meter: Meter,
        mode: Mode,
        save_every: int,
    ) -> None:
        self._stream = stream
        self._make = make
        self._history = history
        self._journal = journal
        self._meter = meter
        self._mode: Mode = mode
        self._save_every = save_every
        self._since_saved = 0
        # The line of the last change. A snapshot has the number of its own line, and holds every change before it.
        self._changed = 0
        self.learner: Learner | None = None

    def awake(self) -> Learner:
        """Return the learner; build it or read it from disk if it is not in memory."""
        if self.learner is None:
            learner = self._make()
            found = self._history.resume(learner)
            if found is None:
                learner.set_mode(self._mode)
            self.learner = learner
            self._meter.follow(learner)
            rules = learner.adapter.rules
            if found is None:
                self._journal.write("start", rules=rules)
            else:
                self._meter.recall(found.info.health)
                self._journal.write("resume", snapshot=found.info.name, rules=rules)
        return self.learner

    def changed(self, n: int, *, learnt: bool) -> None:
        """Record a change of the learner, and take a snapshot if one is due and the disk keeps up.

        Args:
            n: The number of the change's line.
            learnt: Whether the change was learning from a batch.
        """
        self._changed = n
        self._since_saved += int(learnt)
        if self._since_saved >= self._save_every and not self._history.busy:
            self.save()

    def operate(self, deed: Deed, do: Callable[[Learner], None], upload: bytes | None = None) -> Saving:
        """Apply an operation to the learner and begin to save the result.

        Args:
            deed: The operation's name in the audit.
            do: The operation.
            upload: The state that the operation loads, if it was uploaded.
        """
        learner = self.awake()
        champion = learner.champion
        do(learner)
        if deed == "reset":
            self._meter.add_reset()
        if deed != "mode" or (champion is not None and learner.champion is None):
            self._meter.recall({})  # the last signals were those of another state
        self._meter.follow(learner)
        info = self.save(deed=deed, upload=upload)
        logger.info("stream %s: %s (%s), snapshot %s", self._stream, deed, learner.mode, info.name)
        return Saving(self._stream, deed, info, self._history.last)

    def rollback(self, name: str | None) -> Saving:
        """Return to a snapshot and begin to save the result. The mode stays.

        Args:
            name: The snapshot's name; None means the newest good one with fewer steps than now.

        Raises:
            UnknownSnapshot: If there is no snapshot of this name.
            NoGoodSnapshot: If no name is given, and there is none to return to.
            NotACheckpoint: If the snapshot's file is damaged. Nothing changes.
        """
        learner = self.awake()
        self._history.settle()
        steps = learner.adapter.steps
        entry = self._history.find_good(steps) if name is None else self._history.find(name)
        mode = learner.mode
        try:
            self._history.load(entry, learner)
        except NotACheckpoint as error:
            logger.error("snapshot %s of stream %s is damaged: %s", entry.info.name, self._stream, error)
            raise NotACheckpoint(f"Snapshot {entry.info.name} is damaged. Roll back to another one.") from error
        learner.set_mode(mode)
        self._meter.add_reset()
        # Outside shadow mode the champion stays, and the signals are those of its challenger.
        self._meter.recall({} if entry.champion and mode != "shadow" else entry.info.health)
        self._meter.follow(learner)
        n = self._journal.next()
        self._journal.write("rollback", n=n, snapshot=entry.info.name)
        self._changed = n
        self.save()
        logger.info("stream %s: rollback from %d steps to snapshot %s", self._stream, steps, entry.info.name)
        return Saving(self._stream, "rollback", entry.info, self._history.last)

    def snapshot(self, pin: bool) -> Saving:
        """Take a snapshot and begin to write it.

        Args:
            pin: Whether to keep it regardless of how many there are.
        """
        return Saving(self._stream, "snapshot", self.save(pin=pin), self._history.last)

    def save(self, *, pin: bool = False, deed: Deed = "snapshot", upload: bytes | None = None) -> SnapshotInfo:
        """Take a snapshot, which another thread writes.

        Args:
            pin: Whether to keep it regardless of how many there are.
            deed: The operation whose result the snapshot saves, if there is one.
            upload: The state that the operation loaded, if it was uploaded.
        """
        learner = self.awake()
        n = self._journal.next()
        name = f"{n:08d}"
        taken = learner.take()
        if upload is not None:
            self._journal.keep_upload(n, upload)
        self._journal.write(deed, n=n, snapshot=name)
        if deed != "snapshot":
            self._changed = n
        self._since_saved = 0
        reading = self._meter.read()
        good = learner.adapter.watch.phase == "ok"
        oldest = self._history.oldest()
        if oldest is not None:
            self._journal.forget(int(oldest.info.name))
        return self._history.add(name, taken, reading.steps, reading.seen, pin=pin, good=good)

    def evict(self) -> None:
        """Release the learner if its state is on disk; if the disk is full, it stays in memory."""
        if self.learner is None:
            return
        self.save_changes()
        if self._saved():
            self.learner = None
            self._journal.tell({"do": "evict"})

    def save_changes(self) -> None:
        """Save what is not on disk yet, and wait for the disk. Errors are logged."""
        self._history.settle()
        if self.learner is not None and not self._saved():
            self.save()
            self._history.settle()

    def _saved(self) -> bool:
        newest = self._history.newest()
        return self._changed <= (0 if newest is None else int(newest.info.name))
