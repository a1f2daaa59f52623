"""Check a record that was read from a file: its JSON, its digest, the types of its values, and its sums."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ctta.bench.scores import Count, Scores
from ctta.bench.spec import address_of
from ctta.errors import BadData

_LARGEST = 64 << 20
#: In a file of format 2: the SHA-256 of everything else, because the address covers the specification only.
DIGEST = "digest"


def read_json(path: Path) -> Any:
    """Read a JSON file of reasonable size.

    Args:
        path: The file.

    Raises:
        BadData: The file cannot be read, or is not JSON of plain Unicode.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST >> 20} MB")
        content = json.loads(path.read_bytes().decode("utf-8"))
        # Escapes can encode characters that no file or terminal accepts.
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (OSError, ValueError, RecursionError) as error:
        raise BadData(f"{path} is not a run record: {error}. Restore it from a copy, or delete it.") from error
    return content


def digest_of(content: Mapping[str, Any]) -> str:
    """The digest of a record's entries, regardless of their order in the file.

    Args:
        content: The record as a JSON object.
    """
    values = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def wrong_entry(record: Mapping[str, Any]) -> str | None:
    """The first entry of a record that is missing or has an impossible value; None if there is none.

    Args:
        record: The record as a JSON object.
    """
    for entries, checks, prefix in ((record, _RECORD, ""), (record.get("spec"), _SPEC, "spec.")):
        if not isinstance(entries, Mapping):
            return "spec"
        for name, check in checks.items():
            if name not in entries or not check(entries[name]):
                return prefix + name
    return next((name for name, check in _OPTIONAL.items() if name in record and not check(record[name])), None)


def adds_up(record: Mapping[str, Any]) -> bool:
    """Whether the address is that of the specification, and the errors match the counts.

    Args:
        record: The record as a JSON object without wrong entries.
    """
    scores = Scores({domain: Count(**count) for domain, count in record["counts"].items()})
    return bool(
        address_of(record["spec"]) == record["address"]
        and record["errors"] == scores.errors
        and math.isclose(record["mean"], scores.mean)
        and record["images"] == scores.images
    )


def _text(value: object) -> bool:
    return isinstance(value, str)


def _text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _whole(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _whole_or_none(value: object) -> bool:
    return value is None or _whole(value)


def _number(value: object) -> bool:
    return _whole(value) or (isinstance(value, float) and math.isfinite(value))


def _table(value: object) -> bool:
    return isinstance(value, dict)


def _named(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _numbers_by_name(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(_number(number) for number in value.values())


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(_number(number) for number in value)


def _counts(value: object) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(count, dict)
            and set(count) == {"images", "wrong"}
            and _whole(count["images"])
            and _whole(count["wrong"])
            and count["images"] > 0
            and 0 <= count["wrong"] <= count["images"]
            for count in value.values()
        )
    )


def _passes(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_whole(number) for number in value)


def _file_name(value: object) -> bool:
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\\0")


_RECORD: dict[str, Callable[[object], bool]] = {
    "address": _text,
    "settings": _table,
    "source_free": _flag,
    **dict.fromkeys(("metric", "direction", "normalisation", "order", "scored", "command"), _text),
    "passes": _passes,
    "counts": _counts,
    "errors": _numbers_by_name,
    "mean": _number,
    "images": _whole,
    "images_per_second": _number,
    "seconds": _number,
    "peak_memory": _whole_or_none,
    "skipped": _whole,
    "environment": _table,
    "steps": _file_name,
    "complete": _flag,
}
_OPTIONAL: dict[str, Callable[[object], bool]] = {"rounds": _numbers, "data_title": _text, "class_names": _names}
_SPEC: dict[str, Callable[[object], bool]] = {
    "method": _text,
    "settings": _table,
    "model": _named,
    "data": _named,
    "protocol": _named,
    "corruptions": _names,
    "severity": _whole_or_none,
    "images": _whole_or_none,
    "batch_size": _whole,
    "seed": _whole,
    "learn": _flag,
    "source_data": _text_or_none,
}
