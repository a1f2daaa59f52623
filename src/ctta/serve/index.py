"""The index of a stream's folder: the name of the stream, what it adapts, and its snapshots."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ctta._system.files import write_atomically
from ctta.errors import DamagedStream, MethodMismatch, SourceMismatch
from ctta.serve.types import MODES, Mode, SnapshotInfo

logger = logging.getLogger("ctta")

_FILE = "snapshots.json"
_LONGEST = 100


@dataclass(frozen=True)
class Kind:
    """The method and source of a stream's adapter; its snapshots fit no other.

    Args:
        method: The method's name.
        source: The digest of the source weights.
    """

    method: str
    source: str


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


@dataclass(frozen=True)
class Index:
    """The content of the file.

    Args:
        stream: The stream's name.
        kind: The method and source of its adapter.
        entries: Its snapshots, oldest first.
    """

    stream: str
    kind: Kind
    entries: Sequence[Entry]

    def write(self, folder: Path) -> None:
        """Replace the file of a folder, atomically.

        Args:
            folder: The stream's folder.
        """
        snapshots = [{**asdict(e.info), "mode": e.mode, "champion": e.champion} for e in self.entries]
        content = {"stream": self.stream, **asdict(self.kind), "snapshots": snapshots}
        write_atomically(folder / _FILE, json.dumps(content, indent=1).encode())


def read_index(folder: Path) -> Index | None:
    """Return the index of a stream's folder; None if there is none.

    Args:
        folder: The stream's folder.

    Raises:
        DamagedStream: If it cannot be read: it is damaged, or a newer version wrote it.
    """
    path = folder / _FILE
    try:
        content = json.loads(path.read_bytes())
        entries = tuple(_entry(fields) for fields in content["snapshots"])
        return Index(str(content["stream"]), Kind(str(content["method"]), str(content["source"])), entries)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        # Without the path, which must not be sent to a client.
        reason = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
        raise DamagedStream(
            f"The list of snapshots of a stream cannot be read ({reason}). Restore the newest copy of {_FILE} in the "
            f"folder {folder.name}, use the version of ctta that wrote it, or move the folder away: the stream then "
            "starts from the source."
        ) from error


def refuse_other_kind(index: Index, kind: Kind, advice: str) -> None:
    """Refuse the snapshots of a stream that another method adapted, or from other weights.

    Args:
        index: The index of the stream's folder.
        kind: The method and source at hand.
        advice: What the user can do about it.

    Raises:
        MethodMismatch: If the stream was adapted by another method.
        SourceMismatch: If it was adapted from other weights.
    """
    if index.kind.method != kind.method:
        raise MethodMismatch(
            f"Stream {index.stream!r} was adapted by {index.kind.method}, not by {kind.method}. {advice}"
        )
    if index.kind.source != kind.source:
        raise SourceMismatch(
            f"Stream {index.stream!r} was adapted from weights {index.kind.source[:12]}..., not from "
            f"{kind.source[:12]}... {advice}"
        )


def stream_of(folder: Path) -> str | None:
    """Return the name of the stream that a folder belongs to; None if the folder does not tell.

    Args:
        folder: The stream's folder.
    """
    index = read_index(folder)
    if index is not None:
        return index.stream
    name = unquote(folder.name)  # older versions wrote the index with the first snapshot
    return name if folder_name(name) == folder.name else None


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
