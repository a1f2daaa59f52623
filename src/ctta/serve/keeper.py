"""The keeper of a stream's learner: it is in memory while in use, on disk when idle, and in snapshots."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ctta.serve.audit import Deed
from ctta.serve.history import History
from ctta.serve.journal import Journal
from ctta.serve.learner import Learner
from ctta.serve.meter import Meter
from ctta.serve.types import Mode, SnapshotInfo

logger = logging.getLogger("ctta")


class Keeper:
    """Builds, saves, restores and evicts the learner of one stream. Only the stream's thread uses it.

    Args:
        make: Builds a new learner.
        history: The stream's snapshots.
        journal: The journal in which every event is recorded.
        meter: The stream's counters.
        mode: The mode in which a new stream starts.
        save_every: Learnt batches between two snapshots.
    """

    def __init__(
        self,
        make: Callable[[], Learner],
        *,
        history: History,
        journal: Journal,
        meter: Meter,
        mode: Mode,
        save_every: int,
    ) -> None:
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

    def operate(self, deed: Deed, do: Callable[[Learner], None]) -> None:
        """Apply an operation to the learner and save the result before returning, so that a crash does not undo it.

        Args:
            deed: The operation's name in the audit.
            do: The operation.
        """
        learner = self.awake()
        do(learner)
        if deed == "reset":
            self._meter.add_reset()
        self._meter.follow(learner)
        info = self.save(deed=deed)
        self._history.settle()
        logger.info("%s, snapshot %s", deed, info.name)

    def rollback(self, name: str | None) -> SnapshotInfo:
        """Return to a snapshot.

        Args:
            name: The snapshot's name; None means the newest good one.
        """
        learner = self.awake()
        self._history.settle()
        entry = self._history.find(name)
        self._history.load(entry, learner)
        self._meter.add_reset()
        self._meter.follow(learner)
        n = self._journal.next()
        self._journal.write("rollback", n=n, snapshot=entry.info.name)
        self._changed = n
        self.save()
        self._history.settle()
        return entry.info

    def snapshot(self, pin: bool) -> SnapshotInfo:
        """Take a snapshot and wait until it is written; raise the error if that fails.

        Args:
            pin: Whether to keep it regardless of how many there are.
        """
        info = self.save(pin=pin)
        self._history.wait()
        return info

    def save(self, *, pin: bool = False, deed: Deed = "snapshot") -> SnapshotInfo:
        """Take a snapshot, which another thread writes.

        Args:
            pin: Whether to keep it regardless of how many there are.
            deed: The operation whose result the snapshot saves, if there is one.
        """
        learner = self.awake()
        n = self._journal.next()
        name = f"{n:08d}"
        taken = learner.take()
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
