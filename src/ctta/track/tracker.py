"""What every sink can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RunName:
    """How a run is found and shown.

    Args:
        key: Letters and digits that identify the run. A run that is opened again under the same key is continued or
            replaced, so that it has every step once.
        name: The name that is shown; also that of its folder, if it has one.
        group: Runs that are shown together: an experiment of MLflow, a project of Weights & Biases.
    """

    key: str
    name: str
    group: str


class Tracker(Protocol):
    """Receives the numbers of one run.

    The caller logs all steps of the run, in order and from the first, even if the run was tracked in part before.
    """

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add facts about the run, such as its settings; later ones replace earlier ones of the same name.

        Args:
            facts: Plain values by name.
        """

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a step.

        Args:
            step: The step.
            numbers: Its numbers by name.
        """

    def conclude(self, name: str, value: float, step: int) -> None:
        """Log a result of the run, known after its last step.

        Args:
            name: The name of the result.
            value: The result.
            step: The last step that it covers.
        """

    def close(self, *, finished: bool) -> None:
        """Write everything that is not written yet.

        Args:
            finished: Whether the run has ended; otherwise it was interrupted.
        """
