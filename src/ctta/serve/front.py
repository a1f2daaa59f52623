"""What the HTTP and the gRPC front end share: a service, its model, its tokens and its metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from ctta.classifier import Classifier
from ctta.errors import NotAllowed, QueueFull, UnknownServed
from ctta.serve.metrics import Metrics
from ctta.serve.protocol import VERSION, Inference, ModelInfo
from ctta.serve.service import Service
from ctta.serve.shapes import Shapes, channels_of
from ctta.serve.tokens import Right, Tokens
from ctta.serve.types import Ask, Reply
from ctta.serve.wire import most_bytes


class Front:
    """A service as its front ends see it.

    Args:
        service: The service.
        classifier: Its source classifier.
        tokens: The tokens and their rights; by default everybody may do everything.
    """

    def __init__(self, service: Service, classifier: Classifier, tokens: Tokens | None = None) -> None:
        self.service = service
        self.tokens = Tokens() if tokens is None else tokens
        self.limits = service.limits
        self.metrics = Metrics(service.streams, service.limits.streams, service.damaged)
        self.shapes = Shapes(classifier)
        self.model = ModelInfo(
            service.name, service.num_classes, service.class_names, (channels_of(classifier), -1, -1)
        )
        weights = sum(value.numel() * value.element_size() for value in classifier.state_dict().values())
        #: Maximum bytes of a request, of an uploaded state, and of all requests that are being read or answered.
        self.most_bytes = most_bytes(service.limits)
        # An adapter holds a student, a teacher, an optimizer and prototypes; sixteen times the weights is ample.
        self.most_state_bytes = 16 * weights + (64 << 20)
        self.bodies = Budget(4 * max(self.most_bytes, self.most_state_bytes))

    def check_model(self, model: str, version: str = "") -> None:
        """Refuse a request for another model.

        Args:
            model: The name in the request.
            version: The version in the request; "" means any.

        Raises:
            UnknownServed: If the service has a different model, or no such version of it.
        """
        if model != self.model.name:
            raise UnknownServed(model, [self.model.name])
        if version not in ("", VERSION):
            raise UnknownServed(f"{model}/versions/{version}", [f"{model}/versions/{VERSION}"])

    def submit(self, request: Inference, right: Right) -> Future[Reply]:
        """Queue a request; if its token may only ask, it is answered but not learnt from, and creates no stream.

        The first request with images of a new shape waits for the network to try it; see `Shapes.known`.

        Args:
            request: The request.
            right: The right of its token.

        Raises:
            InputError, ServiceError: If the request is refused.
            NotAllowed: If the token may only ask, and there is no such stream.
        """
        self.shapes.check(tuple(request.images.shape[1:]))
        if right < Right.TEACH and request.stream not in self.service:
            raise NotAllowed(
                f"There is no stream {request.stream!r} yet, and a new one needs a token with the right teach; got one "
                f"with {right.name.lower()}. Name an existing stream as sequence_id, or send a first request with such "
                "a token."
            )
        learn = request.learn and right >= Right.TEACH
        start = time.monotonic()
        future = self.service.submit(Ask(request.stream, request.images, request.id, learn))
        future.add_done_callback(lambda done: self._count(request.stream, done, start))
        return future

    def remove(self, stream: str) -> None:
        """Remove a stream and release its label in the metrics.

        Args:
            stream: The name of an existing stream.
        """
        self.service.remove(stream)
        self.metrics.forget(stream)

    def _count(self, stream: str, done: Future[Reply], start: float) -> None:
        if not done.cancelled() and done.exception() is None:
            self.metrics.answered(stream, time.monotonic() - start)


class Budget:
    """The number of bytes that the requests of all front ends together may take until they are answered.

    Args:
        most: The number.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._lock = threading.Lock()

    @contextmanager
    def held(self, count: int) -> Iterator[None]:
        """Take some bytes inside the context.

        Args:
            count: How many.

        Raises:
            QueueFull: If fewer are left.
        """
        self.take(count)
        try:
            yield
        finally:
            self.give(count)

    def take(self, count: int) -> None:
        """Take some bytes; `give` returns them.

        Args:
            count: How many.

        Raises:
            QueueFull: If fewer are left.
        """
        with self._lock:
            if self._taken + count > self._most:
                raise QueueFull(f"Other requests hold {self._taken} of at most {self._most} bytes; got {count} more.")
            self._taken += count

    def give(self, count: int) -> None:
        """Return bytes that were taken.

        Args:
            count: How many.
        """
        with self._lock:
            self._taken -= count
