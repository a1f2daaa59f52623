"""What a stream does with a batch of requests: answer it, then learn from it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from ctta.adapter import Step
from ctta.errors import CttaError, LearnerStopped
from ctta.serve.history import History
from ctta.serve.inbox import Inbox, Request, images_of
from ctta.serve.journal import Journal
from ctta.serve.keeper import Keeper
from ctta.serve.labels import Requests
from ctta.serve.learner import Learner
from ctta.serve.meter import Meter
from ctta.serve.types import Limits, Reply

logger = logging.getLogger("ctta")


class Batches:
    """Serves the batches of one stream. Only the stream's thread uses it.

    Args:
        stream: The stream's name.
        limits: The share of batches to learn from.
        clock: A monotonic clock, in seconds.
        keeper: The keeper of the learner.
        inbox: The stream's inbox: learning may be skipped while requests are waiting.
        requests: The requests that the stream remembers.
        history: The stream's snapshots.
        journal: The journal in which every event is recorded.
        meter: The stream's counters.
    """

    def __init__(
        self,
        stream: str,
        limits: Limits,
        clock: Callable[[], float],
        *,
        keeper: Keeper,
        inbox: Inbox,
        requests: Requests,
        history: History,
        journal: Journal,
        meter: Meter,
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._clock = clock
        self._keeper = keeper
        self._inbox = inbox
        self._requests = requests
        self._history = history
        self._journal = journal
        self._meter = meter
        self._since_learnt = 0

    def serve(self, batch: list[Request]) -> None:
        """Answer every request of a batch, then learn from those that allow it.

        Args:
            batch: Requests with images of one size.
        """
        try:
            learner = self._keeper.awake()
            new = self._new(batch)
            others = [request for request in batch if not any(request is other for other in new)]
            if others:
                self._answer(others, learner.predict(images_of(others)), offered=False)
                self._journal.write("answer", others)
            if new:
                self._teach(learner, new)
        except BaseException as error:
            self._meter.add_failure()
            ends = not isinstance(error, Exception)
            if ends:
                failure: BaseException = LearnerStopped(f"The thread of stream {self._stream!r} ended: {error!r}.")
            else:
                failure = error
                if not isinstance(error, CttaError):
                    logger.exception("stream %s could not answer a batch", self._stream)
            for request in batch:
                request.fail(failure)
            if ends:
                raise

    def _new(self, batch: list[Request]) -> list[Request]:
        """Return the requests to learn from: those that ask for it and whose id is new."""
        new: list[Request] = []
        names: set[str] = set()
        for request in batch:
            name = request.ask.id
            known = name is not None and (name in names or self._requests.offered(name))
            if request.ask.learn and not known:
                new.append(request)
                names |= {name} if name is not None else set()
        return new

    def _teach(self, learner: Learner, batch: list[Request]) -> None:
        x = images_of(batch)
        learns = learner.can_learn(len(x))
        shed = learns and self._sheds()
        if not learns or shed:
            self._answer(batch, learner.predict(x), offered=shed)
            self._see(learner, batch, x, shed)
            return
        if learner.champion is not None:
            self._answer(batch, learner.predict(x), offered=True, learnt=True)
            step = self._try(lambda: learner.learn(x))
        else:
            learnt = learner.adapter.watch.learns()
            answer = learner.ask(x)
            self._answer(batch, answer.logits, offered=True, learnt=learnt)
            step = self._try(answer.learn)
        if step is None:
            self._journal.write("answer", batch)
        else:
            self._learnt(learner, batch, x, step)

    def _sheds(self) -> bool:
        """Return whether the next batch is only answered, because others are waiting and enough was learnt."""
        owed = (self._since_learnt + 1) * self._limits.learn_share >= 1
        shed = self._inbox.waiting and not owed
        self._since_learnt = self._since_learnt + 1 if shed else 0
        return shed

    def _answer(self, batch: list[Request], logits: Tensor, *, offered: bool, learnt: bool = False) -> None:
        """Send each request its own rows."""
        rows = torch.split(logits.detach().float().cpu(), [len(request.ask.images) for request in batch])
        now = self._clock()
        newest, reading = self._history.newest(), self._meter.read()
        for request, own in zip(batch, rows, strict=True):
            self._meter.add_answer(len(own), now - request.arrived)
            if request.ask.id is not None:
                self._requests.remember(request.ask.id, own, offered)
        for request, own in zip(batch, rows, strict=True):
            snapshot = None if newest is None else newest.info.name
            request.future.set_result(Reply(own.clone(), reading.steps, reading.mode, snapshot, learnt))

    def _try(self, learn: Callable[[], Step]) -> Step | None:
        """Learn; if that fails, the adapter is unchanged and the stream continues."""
        try:
            return learn()
        except Exception:
            logger.exception("stream %s could not learn from a batch", self._stream)
            self._meter.add_failure()
            return None

    def _learnt(self, learner: Learner, batch: list[Request], x: Tensor, step: Step) -> None:
        n = self._journal.next()
        self._journal.keep(n, x)
        signals = self._meter.add_learnt(learner, step)
        self._journal.write("learn", batch, n=n, alarm=learner.adapter.verdict.alarm, signals=signals)
        self._keeper.changed(n, learnt=True)

    def _see(self, learner: Learner, batch: list[Request], x: Tensor, shed: bool) -> None:
        """Add a batch that is not learnt from to the window."""
        if shed:
            self._meter.add_shed()
        if learner.adapter.inner._window is None:
            self._journal.write("answer", batch, shed=shed)
            return
        learner.see(x)
        n = self._journal.next()
        self._journal.keep(n, x)
        self._journal.write("see", batch, n=n, shed=shed)
        self._keeper.changed(n, learnt=False)
