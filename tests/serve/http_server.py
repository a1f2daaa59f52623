"""A service on a tiny network behind the HTTP front end, on a free port of this machine."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

import ctta
from ctta.adapter import Adapter
from ctta.serve.front import Front
from ctta.serve.http import HttpFront
from ctta.serve.server import Server, bind
from ctta.serve.service import Service
from ctta.serve.tokens import Tokens
from serve.engine import LIMITS, WAIT, classifier, serving, tent

HOST = "127.0.0.1"
INFER = "/v2/models/tiny/infer"


@dataclass(frozen=True)
class Answered:
    """A complete reply."""

    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        """The content, parsed."""
        return json.loads(self.content)


@dataclass(frozen=True)
class Running:
    """A server that runs in this process."""

    service: Service
    front: Front
    port: int

    def call(self, method: str, path: str, content: Any = None, headers: dict[str, str] | None = None) -> Answered:
        """Send one request on its own connection; content other than bytes is sent as JSON."""
        raw = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        connection = http.client.HTTPConnection(HOST, self.port, timeout=WAIT)
        try:
            connection.request(method, path, raw, headers or {})
            reply = connection.getresponse()
            return Answered(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection((HOST, self.port), timeout=WAIT)


@contextmanager
def running(
    make: Callable[[ctta.Classifier], Adapter] = tent,
    *,
    tokens: Tokens | None = None,
    hosts: frozenset[str] = frozenset({HOST}),
    **options: Any,
) -> Iterator[Running]:
    """Run a server; on exit, shut it down and close its service."""
    with serving(make=make, **({"limits": LIMITS} | options)) as service:
        front = Front(service, classifier(), tokens)
        started = threading.Event()
        server = _Announcing(HttpFront(front, hosts=hosts), started)
        listening = bind(HOST, 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert started.wait(WAIT)
        try:
            yield Running(service, front, listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(WAIT)
            assert not thread.is_alive()


class _Announcing(Server):
    """A server that sets an event once it listens."""

    def __init__(self, app: HttpFront, listens: threading.Event) -> None:
        super().__init__(app)
        self._listens = listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then set the event."""
        await super().startup(sockets)
        self._listens.set()


def request(x: Any, **more: Any) -> dict[str, Any]:
    """The JSON of an inference request for images."""
    data = x.flatten().tolist()
    return {"inputs": [{"name": "images", "datatype": "FP32", "shape": list(x.shape), "data": data}]} | more
