"""Processes that kill themselves at a chosen line, so that the moment does not depend on the machine's speed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import ctta

PACKAGE = Path(ctta.__file__).parent


class Lines:
    """Trace function that counts the lines executed in a file or below a folder and kills the process at one of them.

    Args:
        where: The file or folder whose lines count.
        last: The number of the line at which the process dies; None to count only.
    """

    def __init__(self, where: Path, last: int | None = None) -> None:
        self.where, self.last, self.count = str(where), last, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.where):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


@contextmanager
def traced(lines: Lines) -> Iterator[Lines]:
    """Count the lines executed inside."""
    before = sys.gettrace()
    sys.settrace(lines)
    try:
        yield lines
    finally:
        sys.settrace(before)
