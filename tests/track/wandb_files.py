"""Read the files of offline runs of Weights & Biases, which are logs in the format of LevelDB."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK = 32768
_FILE_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a run."""
    from wandb.proto import wandb_internal_pb2  # noqa: PLC0415, an extra

    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, parts = _FILE_HEADER, b""
    while position + 7 <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < 7:  # too little for a header: zeros up to the next block
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        if position + 7 + length > len(data):  # still being written
            return
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (_FULL, _LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""
        else:
            assert kind in (_FIRST, _MIDDLE)


def history(path: Path) -> list[dict[str, Any]]:
    """What the run logged, one row per step."""
    rows = [record.history.item for record in records(path) if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row} for row in rows]


def updates(path: Path, kind: str) -> dict[str, Any]:
    """The last values of the run's "config" or "summary"."""
    found: dict[str, Any] = {}
    for record in records(path):
        if record.WhichOneof("record_type") == "run" and kind == "config":
            items = record.run.config.update
        elif record.WhichOneof("record_type") == kind:
            items = getattr(record, kind).update
        else:
            continue
        found |= {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
    return found


def exit_codes(path: Path) -> list[int]:
    """The exit code with which the run ended; empty until wandb's own process has written it."""
    return [record.exit.exit_code for record in records(path) if record.WhichOneof("record_type") == "exit"]
