"""One batch: check it, predict for it, with a window if there is one, and learn from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from ctta._adapter.answer import finish
from ctta._adapter.layout import _UnsafeLayout, refuse_unsafe_backward
from ctta._adapter.method import Learning, MethodPart, Result, Step, _NonFiniteStep
from ctta._adapter.recent_classes import concentration, with_batch
from ctta._checks.images import check_images
from ctta._checks.model import REMOVE_SOFTMAX, look_like_probabilities
from ctta._system.forward_pass import tell_concentration
from ctta.batch_norm import noting, statistics_of
from ctta.errors import BatchTooSmall, InferenceMode, MethodError, NonFiniteImages, NotTraceable
from ctta.functional import diversity
from ctta.norms import batch_norms, source_statistics_where_single
from ctta.statistics import Batch, Source, Statistics

logger = logging.getLogger("ctta")


class BatchPart(MethodPart):
    """The part of `Adapter` that passes one batch from the user to the method."""

    invalid: Literal["raise", "answer"]
    reset_every: int | None
    _layout: torch.memory_format
    # What only a forward pass shows: whether the method has looked at one, and whether the network can learn in its
    # layout.
    _first_pass_seen: bool = False
    _layout_proven: bool = False
    _keeps_statistics: bool
    _follows_predictions: bool
    recent_classes: Tensor | None

    @property
    def smallest_batch(self) -> int:
        """The smallest batch that a step accepts with this model."""
        return 2 if any(isinstance(statistics, Batch) for statistics in self._chosen_statistics()) else 1

    def _chosen_statistics(self) -> list[Statistics]:
        """Return the statistics of every batch norm, if the method leaves the choice to them."""
        return [statistics_of(layer) for layer in batch_norms(self.student)] if self.uses_batch_statistics else []

    def _refuse_impossible(self) -> None:
        self._refuse_tracing()
        if torch.is_inference_mode_enabled():
            raise InferenceMode(
                f"{type(self).__name__}.step learns and needs gradients; it was called inside torch.inference_mode. "
                "Use torch.no_grad, or predict() to predict without learning."
            )

    def _refuse_tracing(self) -> None:
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        if tracing or torch.compiler.is_exporting():
            raise NotTraceable(
                f"{type(self).__name__} changes with every batch and cannot be traced, scripted or exported. "
                "Export adapter.freeze(), a plain module that predicts as the adapter does now."
            )

    def _admit(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Check a batch and convert it for the student; also return which images are invalid (None: none)."""
        broken = check_images(x)
        if broken is not None and self.invalid == "raise":
            raise NonFiniteImages(
                f"Images must be finite; {int(broken.sum())} of {len(x)} contain NaN or Inf. Repair them, or use "
                'invalid="answer" to predict for such a batch without learning from it.'
            )
        like = next(self.student.parameters(), x)
        x = x.detach().to(like.device, like.dtype, memory_format=self._layout)
        return (x.clone() if x.is_inference() else x), broken

    def _admit_for_later(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Admit a batch whose memory the caller may use again before it is learnt."""
        admitted, broken = self._admit(x)
        is_the_callers = admitted.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        return (admitted.clone() if is_the_callers else admitted), broken

    def _step(self, x: Tensor, broken: Tensor | None) -> Learning:
        if broken is not None:
            logits = self._without_trace(lambda: self._answer_around(x, broken))
            yield logits
            return Step(logits, log={"invalid": float(broken.sum())})
        if self._window is None:
            return (yield from self._learn(x))
        held, all_new = self._window.push(x)
        if not all_new:
            logits = self._answer_newest(held, len(x))
            yield logits
            return Step(logits)
        learning = self._learn(held)
        yield next(learning)[-len(x) :]
        step = finish(learning)
        return Step(step.logits[-len(x) :], step.loss, step.log)

    def _predict(self, x: Tensor, broken: Tensor | None, allow_small: bool) -> Tensor:
        if broken is not None:
            return self._answer_around(x, broken)
        if self._window is None:
            return self._answer_newest(x, len(x)) if allow_small else self._answer(x)
        return self._answer_newest(self._window.seen_with(x), len(x))

    def _learn(self, x: Tensor) -> Learning:
        self._refuse_too_small(x)
        reset_due = self.reset_every is not None and self.steps > 0 and self.steps % self.reset_every == 0
        if reset_due:
            self.restore()
        logits, step = None, None
        self._tell_networks()
        try:
            with noting(self) if self._keeps_statistics else nullcontext():
                with self._watching_first_pass(), self._watching_layout():
                    work = self.adapt(x)
                    self._refuse_work(work)
                    first = work.logits if isinstance(work, Step) else next(work)
                if isinstance(work, Step):
                    step = work
                else:
                    self.require_finite(first.sum())
                    logits = first
                    yield logits
                    with self._watching_layout():
                        step = finish(work)
                    self._refuse_result(step)
        except _NonFiniteStep:
            if not self.predicts_first:  # it may have learnt from a part of the batch before the step ended
                self._take_back(reset_due)
            self._count_skipped()
        finally:
            self._drop_gradients()
        if logits is None:
            logits = self._answer(x) if step is None else step.logits
            yield logits
        self.steps += 1
        if step is None:
            step = Step(logits, log={"skipped": 1.0})
        elif self._follows_predictions:
            self.recent_classes = with_batch(self.recent_classes, step.logits)
        return Step(step.logits, step.loss, {**step.log, "diversity": diversity(step.logits).item()})

    def _take_back(self, reset_due: bool) -> None:
        """Undo what a step has changed so far, except a reset at its beginning and the images in the window."""
        if self._undo is None:
            return
        window = None if self._window is None else self._window.state()
        self._undo.put_back()
        if self._window is not None and window is not None:
            self._window.load(window)
        if reset_due:
            self.restore()

    def _refuse_work(self, work: object) -> None:
        if not isinstance(work, (Step, Generator)):
            raise MethodError(
                f"adapt() of {type(self).__name__} returned {type(work).__name__}. Return a ctta.adapter.Step; or "
                "yield the logits, learn, and return a Step."
            )

    def _refuse_result(self, step: object) -> None:
        if not isinstance(step, Step):
            raise MethodError(
                f"adapt() of {type(self).__name__} yielded the logits and then returned {type(step).__name__}. End it "
                "with: return Step(logits, loss.item(), log)."
            )

    @contextmanager
    def _watching_first_pass(self) -> Iterator[None]:
        """Let the method look at its first pass, and warn of a network that ends with a softmax."""
        if self._first_pass_seen:
            yield
            return
        ends_with_softmax: list[bool] = []
        hook = self.student.register_forward_hook(
            lambda student, images, logits: ends_with_softmax.append(look_like_probabilities(logits.detach()))
        )
        try:
            with self.first_pass():
                yield
        finally:
            hook.remove()
        self._first_pass_seen = True
        if any(ends_with_softmax):
            logger.warning("%s %s", type(self.student.model).__name__, REMOVE_SOFTMAX)

    @contextmanager
    def _watching_layout(self) -> Iterator[None]:
        """Raise _UnsafeLayout in a forward pass, the first with a gradient, that must not run in channels_last."""

        def check(student: nn.Module, images: tuple[Tensor, ...], logits: Tensor) -> None:
            if logits.requires_grad and self._layout is torch.channels_last:
                refuse_unsafe_backward(logits)
                self._layout_proven = True

        if self._layout_proven:
            yield
            return
        hook = self.student.register_forward_hook(check)
        try:
            yield
        finally:
            hook.remove()

    def _in_safe_layout(self, begin: Callable[[], Result]) -> Result:
        """Begin a step; if the network cannot learn in channels_last, begin again in planes, where all can."""
        try:
            return begin()
        except _UnsafeLayout:
            self._use_planes()
            return begin()

    def _use_planes(self) -> None:
        self._layout = torch.contiguous_format
        self._layout_proven = True
        self.to(memory_format=self._layout)  # type: ignore[call-overload]

    @torch.no_grad()
    def _answer(self, x: Tensor) -> Tensor:
        self._refuse_too_small(x)
        self._tell_networks()
        return self.answer(x)

    def _tell_networks(self) -> None:
        if self._follows_predictions:
            tell_concentration(self, concentration(self.recent_classes))

    def _refuse_too_small(self, x: Tensor) -> None:
        if len(x) < self.smallest_batch:
            raise BatchTooSmall(
                f"{type(self).__name__} normalises by batch statistics and needs at least {self.smallest_batch} "
                f'images; got {len(x)}. Use window=16, statistics="prior:16" or a model without batch norm.'
            )

    def _answer_around(self, x: Tensor, broken: Tensor) -> Tensor:
        """Predict for the valid images; an invalid one gets all-zero logits, so that every class is equally likely."""
        # If none is valid, black images show how many classes there are.
        sound = x.new_zeros(x.shape) if broken.all() else x[~broken]
        answers = self._answer_newest(sound, len(sound))
        logits = answers.new_zeros(len(x), answers.shape[1])
        if not broken.all():
            logits[~broken] = answers
        return logits

    @torch.no_grad()
    def _answer_newest(self, held: Tensor, newest: int) -> Tensor:
        """Predict for the last images of a window; batch norms take their statistics from the whole window."""
        self._tell_networks()
        alone = all(isinstance(statistics, Source) for statistics in self._chosen_statistics())
        if alone and not self.predicts_batch_together:
            return self.answer(held[-newest:])
        with source_statistics_where_single(self):
            return self.answer(held)[-newest:]
