"""What the thread of a stream does with a batch of requests: answer it, then learn from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from torch import Tensor

from ctta.adapter import Step
from ctta.errors import ImageShape
from ctta.serve.double import Double
from ctta.serve.inbox import Inbox, Named, Request, images_of, named
from ctta.serve.journal import Journal
from ctta.serve.keeper import Keeper
from ctta.serve.learner import Learner
from ctta.serve.lessons import Lessons
from ctta.serve.meter import Meter
from ctta.serve.replies import Replies

logger = logging.getLogger("ctta")


class Batches:
    """Serves the batches of one stream. Only the stream's thread uses it.

    Args:
        stream: The stream's name.
        keeper: The keeper of the learner.
        inbox: The stream's inbox, which is open to the stand-in while this thread learns.
        replies: Sends the replies.
        double: The copy with which the stand-in answers; None if the stream has no stand-in.
        lessons: What the stand-in leaves to this thread.
        journal: The journal in which every event is recorded.
        meter: The stream's counters.
    """

    def __init__(
        self,
        stream: str,
        *,
        keeper: Keeper,
        inbox: Inbox,
        replies: Replies,
        double: Double | None,
        lessons: Lessons,
        journal: Journal,
        meter: Meter,
    ) -> None:
        self._stream = stream
        self._keeper = keeper
        self._inbox = inbox
        self._replies = replies
        self._double = double
        self._lessons = lessons
        self._journal = journal
        self._meter = meter

    def serve(self, batch: list[Request]) -> None:
        """Answer every request of a batch, then learn from those that allow it.

        Args:
            batch: Requests with images of one size.
        """
        try:
            learner = self._keeper.awake()
            new, others = self._replies.divide(batch)
            if others:
                self._replies.send(others, learner.predict(images_of(others)), steps=learner.steps, offered=False)
                self._journal.write("answer", named(others))
            if new:
                self._teach(learner, new)
        except BaseException as error:  # noqa: BLE001, raised again if it must end the stream
            self._replies.fail(batch, error)

    def catch_up(self, *, open_to_stand_in: bool = False) -> None:
        """Learn from one batch that the stand-in answered, or from all of them.

        Args:
            open_to_stand_in: Let the stand-in answer meanwhile, and learn from one batch only; otherwise no request is
                answered until all is learnt.
        """
        while self._lessons:
            notes, batch = self._lessons.take()
            learner = self._keeper.awake()
            for note in notes:
                self._note(learner, note.requests, shed=note.shed, images=note.images)
            if batch:
                x = images_of(batch)
                learnt, learn = learner.will_learn(x), partial(learner.learn, x)
                self._learn(learner, batch, x, learn, learnt=learnt, open_to_stand_in=open_to_stand_in)
            if open_to_stand_in:
                return

    def follow(self) -> None:
        """Let the double follow the learner, if the stream learns at all."""
        if self._double is None:
            return
        learner = self._keeper.learner
        if learner is None or learner.mode == "frozen":
            self._double.drop()
        else:
            self._double.follow(learner)
            for images, learnt in self._lessons.unseen():
                self._double.see(images, learnt=learnt)

    def _teach(self, learner: Learner, batch: list[Request]) -> None:
        x = images_of(batch)
        if not learner.can_learn(len(x)):
            self._replies.send(batch, learner.predict(x), steps=learner.steps, offered=False)
            self._note(learner, named(batch), shed=False, images=x)
            return
        if self._double is not None and not self._double.ready:
            self._double.follow(learner)
        self._lessons.none_is_owed()
        learnt, steps = learner.will_learn(x), learner.steps
        if learner.champion is not None:
            self._replies.send(batch, learner.predict(x), steps=steps, offered=True, learnt=learnt)
            self._show_double(x)
            self._learn(learner, batch, x, partial(learner.learn, x), learnt=learnt)
        else:
            try:
                answer = learner.ask(x)
            except ImageShape as error:  # the method remembers images of another size
                self._replies.send(batch, learner.predict(x), steps=steps, offered=False)
                logger.warning("stream %s could not learn from a batch: %s", self._stream, error)
                self._meter.add_failure()
                self._journal.write("answer", named(batch))
                return
            self._replies.send(batch, answer.logits, steps=steps, offered=True, learnt=learnt)
            self._show_double(x)
            self._learn(learner, batch, x, partial(learner.learn_answer, answer), learnt=learnt)

    def _show_double(self, x: Tensor) -> None:
        if self._double is not None:
            self._double.see(x, learnt=True)

    def _learn(
        self,
        learner: Learner,
        batch: list[Request],
        x: Tensor,
        learn: Callable[[], Step],
        *,
        learnt: bool,
        open_to_stand_in: bool = True,
    ) -> None:
        """Learn from a batch that is answered; if that fails, the adapter is unchanged and the stream continues."""
        with self._inbox.open_to_stand_in() if open_to_stand_in else nullcontext():
            try:
                step = learn()
            except Exception:
                logger.exception("stream %s could not learn from a batch", self._stream)
                self._meter.add_failure()
                self._journal.write("answer", named(batch))
            else:
                n = self._journal.next()
                self._journal.keep(n, x)
                signals = self._meter.add_step(learner, step, learnt=learnt)
                self._journal.write("learn", named(batch), n=n, alarm=learner.adapter.verdict.alarm, signals=signals)
                self._keeper.changed(n, learnt=True)
        self.follow()

    def _note(self, learner: Learner, requests: Named, *, shed: bool, images: Tensor | None) -> None:
        """Record a batch that is not learnt from, and add its images to the window if there is one."""
        if shed:
            self._meter.add_shed()
        if images is None or learner.adapter.inner._window is None:
            self._journal.write("answer", requests, shed=shed)
            return
        learner.see(images)
        n = self._journal.next()
        self._journal.keep(n, images)
        self._journal.write("see", requests, n=n, shed=shed)
        self._keeper.changed(n, learnt=False)
