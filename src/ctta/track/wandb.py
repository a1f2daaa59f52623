"""Weights & Biases in offline mode: a folder per run, which `wandb sync` uploads if you want it to."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctta.track.tracker import RunName


def open_run(directory: Path, run: RunName) -> WandbRun:
    """Open a run and delete an older one with the same key: an offline run cannot be continued.

    Error reports to the makers of wandb are switched off, unless WANDB_ERROR_REPORTING says otherwise.

    Args:
        directory: The folder below which wandb writes.
        run: How the run is found and shown.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported
    import wandb  # noqa: PLC0415, an extra

    for older in directory.glob(f"wandb/offline-run-*-{run.key}"):
        shutil.rmtree(older, ignore_errors=True)
    started = wandb.init(
        project=re.sub(r"[^\w.-]+", "-", run.group),
        id=run.key,
        name=run.name,
        dir=str(directory.absolute()),
        mode="offline",
        reinit="create_new",
        settings=wandb.Settings(console="off", silent=True),
    )
    return WandbRun(started)


class WandbRun:
    """Writes the numbers of one run.

    Args:
        run: The run of wandb.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def describe(self, facts: Mapping[str, object]) -> None:
        """Write facts as the run's configuration; see `Tracker.describe`."""
        self._run.config.update(dict(facts), allow_val_change=True)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step; see `Tracker.log`."""
        self._run.log(dict(numbers), step=step)

    def conclude(self, name: str, value: float, step: int) -> None:
        """Write a result to the run's summary, because wandb does not go back to an earlier step."""
        self._run.summary[name] = value

    def close(self, *, finished: bool) -> None:
        """Write the rest and the status of the run; see `Tracker.close`."""
        self._run.finish(exit_code=0 if finished else 1)
