"""The folder of a run: the names of its files, and how each of them is read and written."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from ctta._system.files import write_atomically
from ctta._system.locks import hold_lock
from ctta.bench.record import FORMAT, READABLE, SCHEMA, Record
from ctta.bench.record_checks import DIGEST, adds_up, digest_of, read_json, wrong_entry
from ctta.bench.scores import Count
from ctta.bench.steps import StepFacts, StepLog, line_of, log_of, numbered_steps, read_steps
from ctta.bench.unfinished import remember_threads
from ctta.errors import BadData, MissingData
from ctta.version import __version__

#: The step log that a run writes; in published runs it is compressed.
STEPS = "steps.jsonl"
_RECORD = "record.json"
_COMPRESSED = f"{STEPS}.gz"
_ADAPTED = "adapted.ctta"
_LOCK = "lock"
_THREADS = "threads"
_CHECKPOINT = re.compile(r"step-[0-9]{8,12}\.ctta")

_CHECKPOINTS_KEPT = 2


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    A finished run has its record and step log, and its adapted model if that was kept. An unfinished run also
    has a lock, the number of threads it computes with, and its last checkpoints; a file that is being written has a
    temporary name in the same folder.

    Args:
        path: The folder, named after the address of the run. It need not exist.
    """

    path: Path

    @classmethod
    def with_steps(cls, folder: Path) -> list[RunFolder]:
        """Every folder with a step log, at any depth.

        Args:
            folder: Where to look.
        """
        files = (path for name in (STEPS, _COMPRESSED) for path in folder.rglob(name))
        return [cls(path) for path in sorted({file.parent for file in files})]

    @property
    def record_file(self) -> Path:
        """The record."""
        return self.path / _RECORD

    @property
    def steps_file(self) -> Path:
        """The step log as a run writes it."""
        return self.path / STEPS

    @property
    def compressed_steps_file(self) -> Path:
        """The step log as it is published."""
        return self.path / _COMPRESSED

    @property
    def adapted_file(self) -> Path:
        """The adapted model, if it was kept."""
        return self.path / _ADAPTED

    @property
    def sibling(self) -> RunFolder:
        """A folder next to this one, in which to repeat a finished run."""
        return RunFolder(self.path.with_name(f"{self.path.name}.again"))

    def create(self) -> None:
        """Create the folder if there is none."""
        self.path.mkdir(parents=True, exist_ok=True)

    def delete(self) -> None:
        """Delete the folder and all its files."""
        shutil.rmtree(self.path)

    def read_record(self) -> Record:
        """Read the record.

        Raises:
            BadData: There is no record, it has a different format, or it was changed after it was written.
        """
        return read_record(self.record_file)

    def write_record(self, record: Record) -> None:
        """Write the record; the file is replaced atomically.

        Args:
            record: The record.
        """
        content = record.to_json()
        if content["format"] == FORMAT:
            content[DIGEST] = digest_of(content)
        # Lone surrogates, from names that are not UTF-8, are written as JSON escapes.
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_atomically(self.record_file, text.encode("utf-8", "backslashreplace"))

    def finished_record(self) -> Record | None:
        """The record of a run that has reached the end of its stream; None if it has not.

        Raises:
            BadData: The record is damaged, and there is no checkpoint to resume from.
        """
        if not self.record_file.exists():
            return None
        try:
            record = self.read_record()
        except BadData:
            if not self.checkpoints():
                raise
            return None  # the run resumes from a checkpoint and writes its record again
        return record if record.complete else None

    def has_steps(self) -> bool:
        """Whether there is a step log."""
        return self._existing_steps() is not None

    def read_steps(self, counts: Mapping[str, Count] | None = None) -> list[StepFacts]:
        """Read the step log, plain or compressed.

        Args:
            counts: The entry `counts` of the record, which the steps must add up to.

        Raises:
            MissingData: There is no step log.
            BadData: A line is damaged or missing; the message names it.
        """
        path = self._existing_steps()
        if path is None:
            raise MissingData(f"{self.path} has no step log: neither {STEPS} nor {_COMPRESSED}.")
        return read_steps(path, counts)

    def read_log(self, counts: Mapping[str, Count] | None = None) -> StepLog:
        """Read the step log and sum its entropy histograms.

        Args:
            counts: The entry `counts` of the record, which the steps must add up to.

        Raises:
            MissingData: There is no step log.
            BadData: The log is damaged.
        """
        return log_of(self.read_steps(counts))

    def _existing_steps(self) -> Path | None:
        return next((path for path in (self.steps_file, self.compressed_steps_file) if path.is_file()), None)

    def first_steps(self, count: int) -> list[StepFacts]:
        """Read the first steps of the log; anything after them may be damaged.

        Args:
            count: How many steps to read.

        Raises:
            BadData: One of these steps is damaged or missing.
        """
        path = self.steps_file
        steps = [step for step, _ in islice(numbered_steps(path), count)]
        if len(steps) < count:
            raise BadData(f"{path} holds {len(steps)} steps, fewer than the {count} of its checkpoint.")
        for number, step in enumerate(steps):
            if not {"wrong", "seconds"} <= set(step):
                raise BadData(f"Line {number + 1} of {path} is not step {number} of a run.")
        return steps

    def keep_steps(self, steps: Sequence[StepFacts]) -> None:
        """Rewrite the log with only these steps; later ones are computed again, and lines of old versions get a check.

        Args:
            steps: The steps before the checkpoint that the run resumes from.
        """
        content = "".join(map(line_of, steps)).encode()
        if self.steps_file.exists() and self.steps_file.read_bytes() != content:
            write_atomically(self.steps_file, content)

    def checkpoints(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return sorted((p for p in self.path.glob("step-*.ctta") if _CHECKPOINT.fullmatch(p.name)), key=steps_before)

    def save_checkpoint(self, save: Callable[[Path], None], done: int, log: TextIO) -> None:
        """Write a checkpoint and delete all but the last two.

        Args:
            save: Writes the adapter to a file.
            done: Number of steps before the checkpoint.
            log: The step log, open for writing.
        """
        # Write the log first: a checkpoint must never be ahead of the steps it belongs to.
        sync(log)
        save(self.path / f"step-{done:08d}.ctta")
        # Keep the previous checkpoint, in case this one is damaged.
        for path in self.checkpoints()[:-_CHECKPOINTS_KEPT]:
            path.unlink()

    def delete_checkpoints(self) -> None:
        """Delete the checkpoints of a run that has ended."""
        for path in self.checkpoints():
            path.unlink()

    def lock(self) -> AbstractContextManager[None]:
        """Lock the folder.

        Raises:
            ConcurrentUse: Another process holds the lock.
        """
        busy = f"Another process is already working on this run ({self.path}). Wait for it, or use another --out."
        return hold_lock(self.path / _LOCK, busy)

    def threads(self, now: int) -> AbstractContextManager[int]:
        """The number of threads to compute with. A resumed run uses the same number as before, because a different one
        may change the last bits of sums. It is deleted when the run has ended.

        Args:
            now: The number to use for a new run.

        Raises:
            BadData: The number is damaged.
        """
        return remember_threads(self.path / _THREADS, now, resume=bool(self.checkpoints()))


def read_record(path: Path) -> Record:
    """Read a record.

    Args:
        path: Its file, or the folder of the run.

    Raises:
        BadData: It is not a record, has a different format, or was changed after it was written.
    """
    file = RunFolder(path).record_file if path.is_dir() else path
    entries = read_json(file)
    if not isinstance(entries, dict) or "format" not in entries:
        raise BadData(f"{file} is not a run record. Restore it from a copy, or delete it.")
    made = entries["format"]
    if type(made) is not int or made not in READABLE:
        raise BadData(
            f"{file} is a run record of format {str(made)[:20]}; ctta {__version__} reads formats 1 to {FORMAT}. "
            "Use the version of ctta that wrote it, or delete it."
        )
    digest = entries.pop(DIGEST, None) if made == FORMAT else None
    # The digest covers entries that a later version may have added; format 1 has no digest.
    if not set(entries) >= set(SCHEMA) or (made != FORMAT and set(entries) != set(SCHEMA)):
        raise BadData(f"{file} is not a run record of format {made}: it lacks entries, or has unknown ones.")
    wrong = wrong_entry(entries)
    if wrong is not None or (made == FORMAT and digest != digest_of(entries)) or not adds_up(entries):
        raise BadData(
            f"{file} was changed or damaged: {f'its {wrong!r} cannot be right' if wrong else 'it does not add up'}. "
            f"Restore it from a copy, or delete {file.parent} to make the run again."
        )
    return Record.from_json(entries)


def read_records(folder: Path) -> list[Record]:
    """Read every complete record below a folder, ordered by method, seed and address.

    Args:
        folder: The folder, or the file of one record.

    Raises:
        BadData: There is no complete record, or one of them is damaged.
    """
    if not folder.exists():
        raise BadData(f"There is no folder {folder.absolute()}.")
    files = [folder] if folder.is_file() else sorted(folder.rglob(_RECORD))
    records = [record for file in files if (record := read_record(file)).complete]
    if not records:
        raise BadData(f"There is no complete run record below {folder.absolute()}.")
    return sorted(records, key=lambda record: (record.spec.method, record.spec.seed, record.address))


def runs_with_steps(folders: Iterable[Path]) -> dict[str, RunFolder]:
    """Find the runs that have a step log, by address.

    Args:
        folders: Folders of run records, or files of single records.
    """
    near = [folder.parent if folder.is_file() else folder for folder in folders]
    return {run.path.name: run for folder in near for run in RunFolder.with_steps(folder)}


def steps_before(checkpoint: Path) -> int:
    """The number of steps before a checkpoint.

    Args:
        checkpoint: A file of `RunFolder.checkpoints`.
    """
    return int(checkpoint.stem.removeprefix("step-"))


def sync(file: TextIO) -> None:
    """Flush a file to disk.

    Args:
        file: A file open for writing.
    """
    file.flush()
    os.fsync(file.fileno())
