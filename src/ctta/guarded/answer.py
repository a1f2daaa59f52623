"""The prediction of a guarded adapter, by the adapter or by the reference, and the learning that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ctta._adapter.answer import Answer
from ctta.adapter import Step
from ctta.errors import AnswerFinished
from ctta.guard import Verdict
from ctta.guard.signals import COMPARED
from ctta.guard.watch import PHASES
from ctta.guarded.pool import signals_of

if TYPE_CHECKING:
    from ctta.guarded.adapter import Guarded


class GuardedAnswer(Answer):
    """The prediction for a batch, before the guarded adapter learns from it.

    Args:
        guarded: The guarded adapter.
        x: Images (N, C, H, W) in [0, 1].
    """

    def __init__(self, guarded: Guarded, x: Tensor) -> None:
        self._guarded = guarded
        self._inner: Answer | None = None
        self._open = False
        watch = guarded.watch
        self._compares = watch.asks_reference()
        self._draws = guarded.inner.generator.get_state()
        try:
            if watch.learns():
                self._inner = guarded.inner.ask(x)
                self._own: Tensor | None = self._inner.logits
            else:
                guarded._lock.hold(self)
                self._own = None
            self._open = True
            self._x, self._broken = guarded.inner._admit_for_later(x)
            if watch.falls_back():
                self._referred: Tensor | None = self._refer()
                self.logits = self._referred
            else:
                self._referred = None
                self.logits = self._answer_frozen() if self._own is None else self._own
        except BaseException:
            self._undo()
            raise

    def learn(self) -> Step:
        """Learn from the batch if the guard allows it, and pass its signals to the guard.

        If an exception interrupts it at any moment, Ctrl-C included, adapter and guard are as before the batch.
        """
        self._require_open()
        put_back = self._guarded._guard_savepoint()
        try:
            step = self._learn_and_judge()
            self._open = False
            return step
        except BaseException:
            put_back()
            self._undo()
            raise

    def forget(self) -> None:
        """Undo everything that the batch changed in the adapter."""
        self._require_open()
        self._undo()

    def _undo(self) -> None:
        """Return the adapter to its state before the batch and release it; the guard stays as it is."""
        if self._inner is None:
            self._guarded._lock.release(self)
        else:
            self._inner._undo()
        self._open = False

    def _learn_and_judge(self) -> Step:
        guarded = self._guarded
        if self._inner is None or self._own is None:
            guarded._lock.release(self)
            guarded.see(self._x)
            verdict = guarded.judge(signals_of(self.logits), learnt=False)
            return Step(self.logits, log=self._log(verdict))
        if self._compares and self._referred is None and self._broken is None:
            self._referred = self._refer()
        moved = self._refer(moved=True) if self._compares and self._broken is None and guarded.confidence.due else None
        step = self._inner.learn()
        if self._broken is not None:
            return Step(self.logits, step.loss, step.log)
        compared = None
        if self._compares and self._referred is not None:
            scale, confidence = guarded.reference.logit_scale, guarded.confidence
            if moved is not None:
                confidence.measure(self._referred, moved, scale)
            confidence.count()
            compared = guarded.pool.add(self._own, self._referred, scale, confidence.overconfidence)
        self._inner._keep_for_undo()  # an alarm may replace the parameters
        verdict = guarded.judge(signals_of(self._own, step, compared), learnt=True)
        return Step(self.logits, step.loss, {**step.log, **self._log(verdict)})

    def _log(self, verdict: Verdict) -> dict[str, float]:
        watch, signals = self._guarded.watch, self._guarded.signals
        log = {"guard": float(PHASES.index(watch.phase))}
        if verdict.alarm is not None:
            log["alarm"] = 1.0
        if signals is not None and signals.compared is not None:
            log |= {name: getattr(signals.compared, name) for name in COMPARED}
        return log

    def _refer(self, *, moved: bool = False) -> Tensor:
        pushed = self._inner is not None and self._broken is None
        return self._guarded.refer(self._x, pushed=pushed, draws=self._draws, moved=moved)

    @torch.no_grad()
    def _answer_frozen(self) -> Tensor:
        inner = self._guarded.inner
        if inner._window is None:
            inner._refuse_too_small(self._x)
        return inner._without_trace(lambda: inner._predict(self._x, self._broken, False))

    def _require_open(self) -> None:
        if not self._open:
            raise AnswerFinished("learn() or forget() was already called on this answer. Call ask() again.")

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.forget()
