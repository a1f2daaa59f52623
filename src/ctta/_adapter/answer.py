"""A prediction now, and learning from it later."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ctta.errors import AnswerFinished

if TYPE_CHECKING:
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
        self._adapter = adapter
        adapter._lock.hold(self)
        try:
            self._before = adapter._savepoint()
            try:
                with torch.enable_grad():
                    self._work = start()
                    # A copy, because learning will use the original logits.
                    self.logits = next(self._work).clone()
            except BaseException:
                self._before.put_back()
                raise
        except BaseException:
            self._end()
            raise

    def learn(self) -> Step:
        """Learn from the batch and return what `Adapter.step` would have returned."""
        work = self._unfinished()
        try:
            with torch.enable_grad():
                return finish(work)
        except BaseException:
            self._before.put_back()
            raise
        finally:
            self._end()

    def forget(self) -> None:
        """Undo everything that the batch changed in the adapter."""
        self._unfinished().close()
        try:
            self._before.put_back()
        finally:
            self._end()

    def _unfinished(self) -> Generator[Tensor, None, Step]:
        if self._work is None:
            raise AnswerFinished("learn() or forget() was already called on this answer. Call ask() again.")
        return self._work

    def _end(self) -> None:
        self._work = None
        self._adapter._undo = None
        self._adapter._lock.release()

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
