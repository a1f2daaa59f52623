"""TensorBoard: a folder of events per run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ctta.track.tracker import RunName

_FLUSH_SECONDS = 10


def open_run(directory: Path, run: RunName) -> Events:
    """Open the events of a run.

    Args:
        directory: Folder of all events.
        run: How the run is found and shown.
    """
    return Events(directory / re.sub(r"[^\w.=^%-]+", "_", run.name))


class Events:
    """Writes the events of one run and replaces older ones.

    Args:
        folder: Folder of the run's events.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415, an extra

        for older in folder.glob("events.out.tfevents.*"):
            older.unlink()
        self._writer = SummaryWriter(str(folder), flush_secs=_FLUSH_SECONDS)
        self._facts: dict[str, object] = {}

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add facts, which become a table at the end; see `Tracker.describe`."""
        self._facts |= facts

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step; see `Tracker.log`."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def conclude(self, name: str, value: float, step: int) -> None:
        """Write a result; see `Tracker.conclude`."""
        self._writer.add_scalar(name, value, step)

    def close(self, *, finished: bool) -> None:
        """Write the facts of a run that has ended, and close the file; see `Tracker.close`."""
        if finished:
            rows = [f"| {key} | {str(value).replace('|', '/')} |" for key, value in self._facts.items()]
            self._writer.add_text("run", "\n".join(["| | |", "|---|---|", *rows]))
        self._writer.close()
