"""The stand-in of a stream: a second thread, which answers requests while the first one learns."""

from __future__ import annotations

import logging

from ctta.serve.double import Double
from ctta.serve.inbox import Inbox, Request, images_of
from ctta.serve.lessons import Lessons
from ctta.serve.replies import Replies

logger = logging.getLogger("ctta")


class StandIn:
    """Answers from the state before the learning, and leaves every batch to the stream's thread.

    A batch is left to be learnt from while less than a whole one is waiting for that; others are shed. If the next one
    may not be shed, because too few were learnt from, its requests wait. So do all requests if too much is waiting to
    be noted down.

    Args:
        stream: The stream's name.
        double: The copy that predicts. The stream's thread updates it while this one rests.
        inbox: The stream's inbox.
        lessons: What is left to the stream's thread.
        replies: Sends the replies.
    """

    def __init__(self, stream: str, *, double: Double, inbox: Inbox, lessons: Lessons, replies: Replies) -> None:
        self._stream = stream
        self._double = double
        self._inbox = inbox
        self._lessons = lessons
        self._replies = replies

    def run(self) -> None:
        """Answer until the inbox ends."""
        try:
            while (batch := self._inbox.next_for_stand_in(self._may_answer)) is not None:
                self._serve(batch)
                del batch  # it holds images, and more requests may be long in coming
        except BaseException as error:
            logger.exception("the stand-in of stream %s stopped", self._stream)
            self._inbox.stop(error)
        finally:
            self._inbox.leave_stand_in()

    def _may_answer(self) -> bool:
        lessons = self._lessons
        return self._double.ready and not lessons.crowded and not (lessons.full and lessons.owed)

    def _serve(self, batch: list[Request]) -> None:
        double, replies = self._double, self._replies
        try:
            new, others = replies.divide(batch)
            if others:
                logits = double.predict(images_of(others))
                replies.send(others, logits, offered=False, steps=double.steps)
                self._lessons.note(others)
            if new:
                x = images_of(new)
                possible = double.can_learn(len(x))
                accepted = possible and not self._lessons.full
                learnt = accepted and double.will_learn(x)
                replies.send(new, double.predict(x), offered=possible, learnt=learnt, steps=double.steps)
                if accepted:
                    self._lessons.accept(new)
                else:
                    self._lessons.note(new, shed=possible, images=x if double.has_window else None)
                double.see(x, learnt=accepted)
        except BaseException as error:  # noqa: BLE001, raised again if it must end the stream
            replies.fail(batch, error)
