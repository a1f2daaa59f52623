"""How runs report their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ctta.bench.steps import StepFacts

if TYPE_CHECKING:
    from ctta.adapter import Adapter
    from ctta.bench.record import Record
    from ctta.streams.batch import Batch

#: Called with every batch and what its step logged.
Progress = Callable[["Batch", StepFacts], None]

#: Called when a run starts or resumes, with its adapter and the number of steps left; gives the callback for its steps.
RunStarted = Callable[["Adapter", int], Progress]


class ProgressDisplay(Protocol):
    """Shows the progress of several runs."""

    def started(self, adapter: Adapter, steps: int) -> Progress:
        """A run starts or resumes in this process; those of other processes are not announced.

        Args:
            adapter: Its method.
            steps: Number of steps left.

        Returns:
            Called with every batch and what its step logged.
        """

    def finished(self, record: Record) -> None:
        """A run has ended, or was found to have ended before.

        Args:
            record: Its record.
        """


def step_cost(adapter: Adapter) -> int:
    """The work of a step in forward passes; a backward pass takes about two.

    Args:
        adapter: The method.
    """
    forward, backward = adapter.passes
    return forward + 2 * backward
