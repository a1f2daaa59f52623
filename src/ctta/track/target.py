"""The values of --track: which sink, and the folder it writes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ctta.errors import MissingExtra, ParameterError
from ctta.track.several import Several
from ctta.track.tracker import RunName, Tracker

#: Every sink: the module `ctta.track.NAME` opens it, and the extra NAME installs the package NAME that it needs.
SINKS = ("tensorboard", "mlflow", "wandb")


@dataclass(frozen=True)
class Target:
    """Where to track runs.

    Args:
        sink: One of `SINKS`.
        directory: The folder that the sink writes to; it is created.
    """

    sink: str
    directory: Path

    def __str__(self) -> str:
        return f"{self.sink}:{self.directory}"

    def absolute(self) -> Target:
        """Return the same target for use in any working directory."""
        return replace(self, directory=self.directory.absolute())


def parse_target(text: str) -> Target:
    """Parse a value of --track.

    Args:
        text: SINK:DIR.

    Raises:
        ParameterError: There is no such sink, or no folder.
    """
    sink, _, directory = text.partition(":")
    if sink not in SINKS or not directory:
        known = " or ".join([", ".join(f"{name}:DIR" for name in SINKS[:-1]), f"{SINKS[-1]}:DIR"])
        raise ParameterError(f"--track takes {known}. Got {text!r}.")
    return Target(sink, Path(directory))


def check_targets(targets: Sequence[Target]) -> None:
    """Check, before anything is computed, that runs can be tracked.

    Args:
        targets: Where to track them; the folders are created.

    Raises:
        MissingExtra: The package of a sink is not installed.
        ParameterError: A folder cannot be created.
    """
    for target in targets:
        if find_spec(target.sink) is None:
            raise MissingExtra(target.sink, target.sink)
    for target in targets:
        try:
            target.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ParameterError(f"{target.directory} must be a folder to track runs in: {error}.") from error


def open_tracker(targets: Sequence[Target], run: RunName) -> Tracker:
    """Open a run at every target.

    If one fails later, the error is logged and the run goes on without it.

    Args:
        targets: Where to track the run.
        run: How the run is found and shown.
    """
    opened: dict[str, Tracker] = {}
    for target in targets:
        open_run: Callable[[Path, RunName], Tracker] = import_module(f"ctta.track.{target.sink}").open_run
        opened[str(target)] = open_run(target.directory, run)
    return Several(opened)
