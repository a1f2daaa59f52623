"""A process that saves, adapts, and dies at a chosen line while it replaces the file."""

from __future__ import annotations

import torch

import ctta
from dying import PACKAGE, Lines, traced
from reference import net, stream

WRITING = PACKAGE / "_system" / "files.py"


def save_twice(path: str, line: int | None = None) -> int:
    """Save before and after one step; return the number of lines executed to write the second file."""
    torch.set_num_threads(1)
    adapter = ctta.DMSE(net(), seed=5)
    adapter.save(path)
    adapter(stream()[0])
    with traced(Lines(WRITING, line)) as lines:
        adapter.save(path)
    return lines.count
