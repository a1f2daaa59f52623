"""The manifest of a folder that `ctta corrupt` wrote, which distinguishes it from published files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ctta._system.files import write_atomically
from ctta.errors import BadData

NAME = "ctta-corrupt.json"
MADE_BY = "ctta corrupt"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Read the manifest that `ctta corrupt` wrote to a folder; None if there is none.

    Args:
        folder: The folder that may hold `ctta-corrupt.json`.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise BadData(f"{path} cannot be read: {error}.") from error
    if not isinstance(found, dict) or found.get("made_by") != MADE_BY:
        raise BadData(f"{path} is not a manifest of {MADE_BY}.")
    return found


def stacked_severities(manifest: dict[str, Any], folder: Path) -> tuple[int, ...]:
    """Return the severities that the arrays of a folder hold, in their order.

    Args:
        manifest: The manifest of the folder.
        folder: The folder, for the message.
    """
    found = manifest.get("severities")
    if (
        not isinstance(found, list)
        or not found
        or not all(type(level) is int and 1 <= level <= 5 for level in found)
        or len(set(found)) != len(found)
    ):
        raise BadData(f"{folder / NAME} must list severities in 1..5; got {str(found)[:60]}. Run ctta corrupt again.")
    return tuple(found)


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest of a folder.

    Args:
        folder: The folder.
        content: What to write besides `made_by`; it must be serializable as JSON.
    """
    text = json.dumps({"made_by": MADE_BY, **content}, indent=2, ensure_ascii=False)
    # A name that is not UTF-8 has lone surrogates, which are written as JSON escapes.
    write_atomically(folder / NAME, (text + "\n").encode("utf-8", "backslashreplace"))
