"""Runs that go on: waiting for them, and what must be equal when they were interrupted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_for(what: Callable[[], Any]) -> Any:
    """What it gives once that is true."""
    limit = time.monotonic() + 120
    while not (found := what()):
        assert time.monotonic() < limit
        time.sleep(0.005)
    return found


def numbers(record: dict[str, Any], folder: Path) -> Any:
    """All that must be equal between two runs: errors, and every step but its duration, and the check of its line."""
    lines = (folder / record["address"] / "steps.jsonl").read_text().splitlines()
    steps = [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "check")} for line in lines]
    return record["errors"], record["mean"], record["counts"], steps
