"""How runs report their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ctta.bench.steps import StepFacts

if TYPE_CHECKING:
    from ctta.adapter import Adapter
    from ctta.bench.record import Record
    from ctta.streams.batch import Batch

#: Called with every batch and the log of its step.
Progress = Callable[["Batch", StepFacts], None]

#: Called when a run starts or resumes, with its adapter and the number of steps left; returns the callback for its
#: steps.
RunStarted = Callable[["Adapter", int], Progress]


class ProgressDisplay(Protocol):
    """Shows the progress of several runs."""

    def started(self, adapter: Adapter, steps: int) -> Progress:
        """Called when a run starts or resumes in this process; runs in other processes are not announced.

        Args:
            adapter: Its method.
            steps: Number of steps left.

        Returns:
            Called with every batch and the log of its step.
        """

    def finished(self, record: Record) -> None:
        """Called when a run has ended, or was found to be finished already.

        Args:
            record: Its record.
        """


def step_cost(adapter: Adapter) -> int:
    """The cost of a step in forward passes; a backward pass costs about as much as two.

    Args:
        adapter: The method.
    """
    forward, backward = adapter.passes
    return forward + 2 * backward
