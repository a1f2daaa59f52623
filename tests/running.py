"""Helpers for resumed runs: waiting, and what must be equal after an interruption."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctta.bench.folder import RunFolder
from ctta.bench.record import Record


def wait_for(what: Callable[[], Any], *, every: float = 0.005) -> Any:
    """Poll until `what` returns something true, and return it; the timeout of the test is the only limit.

    Args:
        what: The question; one that costs something is better asked less often.
        every: Seconds to leave the CPU to others between two questions.
    """
    while not (found := what()):
        time.sleep(every)
    return found


def numbers(record: Record, folder: Path) -> Any:
    """All that must be equal between two runs: errors, and every step but its duration, and the check of its line."""
    lines = RunFolder(folder / record.address).steps_file.read_text().splitlines()
    steps = [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "check")} for line in lines]
    return record.errors, record.mean, record.counts, steps
