"""The audit: one JSON line for everything that happened to a stream, enough to replay it.

The newest lines are in `STREAM_FILE`. When it has grown large it becomes an older part, which is called by the number
of its last line, and which is deleted when there is too much and no replay needs it.
"""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ctta._system.files import write_atomically
from ctta.errors import BadData, MissingData
from ctta.serve.types import Mode

#: "learn" and "see" take a batch; "answer" changes nothing; the others are operations.
Deed = Literal["learn", "see", "answer", "start", "resume", "reset", "rollback", "mode", "promote", "put", "snapshot"]
STREAM_FILE = "audit.jsonl"
_OLDER = "audit-"
#: The file is divided into parts of this share of what is kept.
_PARTS = 4
_OPTIONAL = ("requests", "shed", "alarm", "snapshot", "signals", "rules")


@dataclass(frozen=True)
class Line:
    """One line of the audit.

    Args:
        n: The line's number in the stream, from 1.
        do: What happened: a batch was learnt from, seen or only answered, or the name of an operation.
        time: When the line was made, in seconds since the epoch.
        mode: The stream's mode after the event.
        steps: Steps learnt by the adapter after the event.
        requests: Id and number of images of every request in the batch, in order; the id is None if the client gave
            none.
        shed: Whether learning was skipped for this batch because other requests were waiting.
        guard: The guard's phase after the event: "ok", "cooldown" or "probation"; "off" without rules.
        alarm: The guard rule that fired, as text; None if none did.
        snapshot: The snapshot that was taken or restored; None if there was none.
        signals: The guard's signals on a "learn" line, by name; empty on other lines.
        rules: The guard's rules on a "start" or "resume" line; empty on other lines.
    """

    n: int
    do: Deed
    time: float
    mode: Mode
    steps: int
    requests: tuple[tuple[str | None, int], ...] = ()
    shed: bool = False
    guard: str = "ok"
    alarm: str | None = None
    snapshot: str | None = None
    signals: dict[str, float] = field(default_factory=dict)
    rules: str = ""


class Audit:
    """Appends lines to a stream's audit.

    Args:
        folder: The stream's folder.
        record: The folder for the images of learnt batches; None keeps no images.
        most_bytes: Bytes above which `forget` deletes old lines; None keeps all.
        after: Begin after this number, if the lines that are left end before it: a power cut may take lines that are
            older than the newest snapshot.
    """

    def __init__(self, folder: Path, record: Path | None = None, most_bytes: int | None = None, after: int = 0) -> None:
        self._folder = folder
        self._record = record
        self._most_bytes = most_bytes
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / STREAM_FILE
        self._torn = path.exists() and not _ends_with_newline(path)
        lines = max(_numbers(path), default=0) if path.exists() else 0
        self.last = max(after, lines, *map(_last_line, _older(folder)))
        self._closed = False
        self._file: int | None = None
        self._size = 0
        self._open()

    def next(self) -> int:
        """The number of the next line."""
        self.last += 1
        return self.last

    def keep(self, n: int, images: Tensor) -> None:
        """Keep the images of a batch if they are recorded. Call it before the batch's line is written.

        Args:
            n: The number of the batch's line.
            images: The images of the batch (N, C, H, W), on the CPU.
        """
        if self._record is not None:
            buffer = BytesIO()
            np.save(buffer, images.numpy(), allow_pickle=False)
            self._record.mkdir(parents=True, exist_ok=True)
            _batch_file(self._record, n).write_bytes(buffer.getvalue())

    def keep_upload(self, n: int, data: bytes) -> None:
        """Keep an uploaded state if images are recorded. Call it before the upload's line is written.

        Args:
            n: The number of the upload's line.
            data: The checkpoint file.
        """
        if self._record is not None:
            write_atomically(upload_file(self._record, n), data)

    def write(self, line: Line) -> None:
        """Append a line in one write, so that a crash loses either the whole line or nothing.

        Args:
            line: The line to append.
        """
        assert not self._closed, "the audit is closed"
        if self._file is None:
            self._open()  # an earlier attempt failed
        if self._most_bytes is not None and self._size > self._most_bytes // _PARTS and not self._torn:
            self._begin_part(line.n - 1)
        fields = {name: value for name, value in asdict(line).items() if value or name not in _OPTIONAL}
        # The remains of an earlier line, after a crash or on a full disk, must not spoil this one.
        assert self._file is not None
        text = b"\n" * self._torn + json.dumps(fields).encode() + b"\n"
        self._torn = True
        if os.write(self._file, text) < len(text):
            raise OSError(errno.ENOSPC, "the line was cut short")
        self._torn = False
        self._size += len(text)

    def forget(self, snapshot: int) -> None:
        """Delete the oldest parts of an audit that is too large, as long as a replay can start from a snapshot.

        Args:
            snapshot: The number of the snapshot's line; the lines after it are kept.
        """
        if self._most_bytes is None:
            return
        parts = _older(self._folder)
        size = self._size + sum(part.stat().st_size for part in parts)
        for part in parts:
            if size <= self._most_bytes or _last_line(part) > snapshot:
                break
            size -= part.stat().st_size
            part.unlink()

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        path = self._folder / STREAM_FILE
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._size = path.stat().st_size

    def _begin_part(self, last: int) -> None:
        (self._folder / STREAM_FILE).rename(self._folder / f"{_OLDER}{last:08d}.jsonl")
        self._release()
        self._open()


def read_stream(folder: Path) -> Iterator[Line]:
    """Yield the lines of a stream's audit in order, as far back as they are kept.

    Args:
        folder: The stream's folder.

    Raises:
        MissingData: If there is no audit.
        BadData: If a complete line does not belong to an audit.
    """
    parts, newest = _older(folder), folder / STREAM_FILE
    for part in parts:
        yield from read_audit(part)
    if newest.exists() or not parts:
        yield from read_audit(newest)


def read_audit(path: Path) -> Iterator[Line]:
    """Yield the lines of one file of an audit in order; a line cut short by a crash is skipped.

    Args:
        path: The file.

    Raises:
        MissingData: If there is no such file.
        BadData: If a complete line does not belong to an audit.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise MissingData(f"There is no audit at {path}.") from None
    with file:
        for text in file:
            try:
                fields: dict[str, Any] = json.loads(text)
            except ValueError:
                continue
            try:
                requests = tuple((name, int(count)) for name, count in fields.pop("requests", ()))
                line = Line(**fields, requests=requests)
            except (ValueError, TypeError, AttributeError) as error:
                raise BadData(f"{path} has a line that no audit has: {text[:100]!r} ({error}).") from error
            yield line


def _numbers(path: Path) -> Iterator[int]:
    """Yield the numbers of the lines of one file, also of lines that another version wrote."""
    with path.open("rb") as file:
        for text in file:
            with suppress(ValueError, TypeError, KeyError):
                yield int(json.loads(text)["n"])


def read_batch(record: Path, line: Line) -> Tensor:
    """Return the images of a line's batch.

    Args:
        record: The folder of the stream's recorded images.
        line: The line.

    Raises:
        MissingData: If the batch was not recorded.
        BadData: If the file is damaged or has a different number of images.
    """
    path = _batch_file(record, line.n)
    try:
        images = torch.from_numpy(np.load(path, allow_pickle=False))
    except FileNotFoundError:
        raise MissingData(f"The images of line {line.n} are needed for a replay; there is no {path}.") from None
    except (ValueError, EOFError, OSError, TypeError) as error:
        raise BadData(f"{path} is not a whole npy file ({error}).") from error
    expected = sum(count for _, count in line.requests)
    if len(images) != expected:
        raise BadData(f"{path} has {len(images)} images; line {line.n} of the audit has {expected}.")
    return images


def requests_of(lines: Iterable[Line], until: int, count: int) -> list[str]:
    """Return the ids of the last requests that were offered for learning and are part of a snapshot, oldest first.

    Args:
        lines: The lines of one audit, oldest first.
        until: The number of the snapshot's line.
        count: How many ids to return at most.
    """
    offered: deque[tuple[int, str]] = deque(maxlen=count)
    for line in lines:
        if line.n > until:
            break
        if line.do in ("start", "resume"):
            # A crash lost what came after the snapshot; those requests may be learnt from when they are sent again.
            kept = int(line.snapshot or 0)
            while offered and offered[-1][0] > kept:
                offered.pop()
        if line.do in ("learn", "see") or line.shed:
            offered.extend((line.n, name) for name, _ in line.requests if name is not None)
    return [name for _, name in offered]


def _older(folder: Path) -> list[Path]:
    # Somebody may have put copies such as audit-backup.jsonl there.
    parts = (path for path in folder.glob(f"{_OLDER}*.jsonl") if path.stem.removeprefix(_OLDER).isdecimal())
    return sorted(parts, key=_last_line)


def _last_line(part: Path) -> int:
    return int(part.stem.removeprefix(_OLDER))


def upload_file(record: Path, n: int) -> Path:
    """Return the file in which an uploaded state is recorded.

    Args:
        record: The folder of the stream's recorded images.
        n: The number of the upload's line.
    """
    return record / f"{n:08d}.safetensors"


def _batch_file(record: Path, n: int) -> Path:
    return record / f"{n:08d}.npy"


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
