"""A prediction now, and learning from it later."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ctta._adapter.layout import _UnsafeLayout
from ctta.errors import AnswerFinished

if TYPE_CHECKING:
    from ctta._adapter.savepoint import Savepoint
    from ctta.adapter import Adapter, Step


class Answer:
    """The prediction for a batch, made before the adapter learns from it; see `Adapter.ask`.

    Until ``learn`` or ``forget`` is called, the answer locks the adapter. If it is garbage collected before that, it is
    forgotten.

    Args:
        adapter: The adapter.
        start: Starts the step and returns it as a generator that yields the logits.

    Attributes:
        logits: The logits (N, C).
    """

    logits: Tensor

    def __init__(self, adapter: Adapter, start: Callable[[], Generator[Tensor, None, Step]]) -> None:
        self._work: Generator[Tensor, None, Step] | None = None
        self._before: Savepoint | None = None
        self._adapter = adapter
        self._start = start
        try:
            adapter._lock.hold(self)
            self._before = adapter._savepoint()
            with torch.enable_grad():
                self._work = self._start()
                # A copy, because learning will use the original logits.
                self.logits = next(self._work).clone()
        except BaseException:
            self._undo()
            raise

    def learn(self) -> Step:
        """Learn from the batch and return what `Adapter.step` would have returned.

        If an exception interrupts it at any moment, Ctrl-C included, the batch is forgotten.
        """
        work = self._unfinished()
        try:
            with torch.enable_grad():
                step = finish(work)
            self._end()
            return step
        except _UnsafeLayout:
            # A method that learns from a memory runs its first pass with a gradient after the prediction.
            self._undo()
            self._adapter._use_planes()
            return Answer(self._adapter, self._start).learn()
        except BaseException:
            self._undo()
            raise

    def forget(self) -> None:
        """Undo everything that the batch changed in the adapter."""
        self._unfinished()
        self._undo()

    def _undo(self) -> None:
        """Return the adapter to its state before the batch, even if learning has ended, and release it."""
        try:
            if self._work is not None:
                self._work.close()
            self._put_back()
            self._end()
        except BaseException:  # a Ctrl-C that interrupted the lines above
            self._put_back()
            self._end()
            raise

    def _keep_for_undo(self) -> None:
        """Copy the parameters now, if learning did not change them, so that ``_undo`` also undoes later changes."""
        if self._before is not None:
            self._before.keep_parameters()

    def _put_back(self) -> None:
        if self._before is not None:
            self._before.put_back()

    def _unfinished(self) -> Generator[Tensor, None, Step]:
        if self._work is None:
            raise AnswerFinished("learn() or forget() was already called on this answer. Call ask() again.")
        return self._work

    def _end(self) -> None:
        self._work = None
        if self._before is not None and self._adapter._undo is self._before:
            self._adapter._undo = None
        self._adapter._lock.release(self)

    def __del__(self) -> None:
        if getattr(self, "_work", None) is not None:
            self.forget()


def finish(work: Generator[Tensor, None, Step]) -> Step:
    """Run a method's ``adapt`` to its end.

    Args:
        work: What ``adapt`` returned, which may already have made its prediction.
    """
    try:
        while True:
            next(work)
    except StopIteration as done:
        step: Step = done.value
        return step
