"""The HTTP front end: the Open Inference Protocol, metrics, and the operations on streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial

from ctta.errors import CttaError, MissingExtra
from ctta.serve import origin, page
from ctta.serve.body import json_reply, off_loop, read_body, until_disconnect
from ctta.serve.front import Front
from ctta.serve.metrics import CONTENT_TYPE
from ctta.serve.openapi import openapi
from ctta.serve.operations import Handler, Operations
from ctta.serve.protocol import Inference, model_metadata, server_metadata
from ctta.serve.status import status_of
from ctta.serve.tokens import Right, require
from ctta.serve.types import Reply
from ctta.serve.wire import HEADER_LENGTH, dump_json, pack_reply, parse_inference

try:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ModuleNotFoundError as error:
    raise MissingExtra("starlette", "serve") from error

logger = logging.getLogger("ctta")

#: The status of a request whose client disconnected; only the metrics use it.
_GONE = 499
_STREAMS = "/ctta/streams"


class HttpFront:
    """The HTTP application of a service. The end of its lifespan closes the service: all is answered and saved.

    Args:
        front: The service.
        hosts: Names under which the server is reached. Without tokens, a request for any other name is refused, so that
            no page of another site can reach the service through a browser. Empty accepts every name.
        on_stop: Called before the service is closed, to stop what runs alongside it.
    """

    def __init__(
        self,
        front: Front,
        *,
        hosts: frozenset[str] = frozenset(),
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._front = front
        self._hosts = hosts
        self._on_stop = on_stop
        self._openapi = dump_json(openapi(front.model))
        self._operations = Operations(front)
        self._app = Starlette(
            routes=self._routes(), lifespan=self._lifespan, exception_handlers={HTTPException: self._no_route}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI request."""
        if scope["type"] == "http" and scope["path"].startswith(f"{_STREAMS}/") and scope.get("raw_path"):
            # The name of a stream may hold an encoded slash: routes are matched against the path as it was sent.
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)

    def stop_logs(self) -> None:
        """End the event streams, which would otherwise keep the server from shutting down."""
        self._operations.closing = True

    def _routes(self) -> list[Route]:
        read = partial(self._route, right=Right.ASK)
        return [
            self._route("/", self._page),
            self._route("/page/{file}", self._page),
            self._route("/openapi.json", self._description),
            self._route("/v2", self._server),
            self._route("/v2/health/live", self._live),
            self._route("/v2/health/ready", self._ready),
            *(
                read(f"/v2/models/{{model}}{version}{path}", handler, method=method)
                for version in ("", "/versions/{version}")
                for path, handler, method in (
                    ("", self._model, "GET"),
                    ("/ready", self._model_ready, "GET"),
                    ("/infer", self._infer, "POST"),
                )
            ),
            read("/metrics", self._metrics),
            *(
                self._route(f"{_STREAMS}{found.path}", found.handler, method=found.method, right=found.right)
                for found in self._operations.routes()
            ),
        ]

    def _route(self, path: str, handler: Handler, *, method: str = "GET", right: Right | None = None) -> Route:
        """Build a route that counts requests, checks the right it needs, if any, and turns errors into replies."""

        async def handle(request: Request) -> Response:
            try:
                if self._front.tokens.open:
                    origin.check(request.headers.get("host"), request.headers.get("origin"), self._hosts)
                if right is not None:
                    request.state.right = self._front.tokens.right_of(request.headers.get("authorization"))
                    require(request.state.right, right)
                reply = await handler(request)
            except ClientDisconnect:
                reply = Response(status_code=_GONE)
            except Exception as error:  # noqa: BLE001, every error is a reply
                reply = _error_reply(error)
            self._front.metrics.request("http", str(reply.status_code))
            return reply

        return Route(path, handle, methods=[method])

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: ASGIApp) -> AsyncIterator[None]:
        try:
            yield
        finally:
            # Here and not after the server has run: uvicorn raises SIGTERM again when it ends.
            await run_in_threadpool(self._on_stop)
            await run_in_threadpool(self._front.service.close)

    async def _no_route(self, request: Request, error: Exception) -> Response:
        reply = _error_reply(error)
        self._front.metrics.request("http", str(reply.status_code))
        return reply

    async def _page(self, request: Request) -> Response:
        name = request.path_params.get("file", "index.html")
        if name not in page.FILES:
            raise HTTPException(404, f"The page has no file {name!r}.")
        return Response(page.content(name), 200, dict(page.HEADERS), page.FILES[name])

    async def _description(self, request: Request) -> Response:
        return Response(self._openapi, media_type="application/json")

    async def _server(self, request: Request) -> Response:
        return json_reply(server_metadata())

    async def _live(self, request: Request) -> Response:
        return json_reply({"live": True})

    async def _ready(self, request: Request) -> Response:
        self._require_ready()
        return json_reply({"ready": True})

    async def _model(self, request: Request) -> Response:
        self._front.check_model(**request.path_params)
        return json_reply(model_metadata(self._front.model))

    async def _model_ready(self, request: Request) -> Response:
        self._front.check_model(**request.path_params)
        self._require_ready()
        return json_reply({"name": self._front.model.name, "ready": True})

    def _require_ready(self) -> None:
        if not self._front.service.ready():
            raise HTTPException(
                503,
                "The service is closing, or the thread of a stream ended with an error; its log tells.",
                {"Retry-After": "5"},
            )

    async def _metrics(self, request: Request) -> Response:
        text = await run_in_threadpool(self._front.metrics.text)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _infer(self, request: Request) -> Response:
        front = self._front
        front.check_model(**request.path_params)
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise HTTPException(415, f"Compressed bodies are not read; got Content-Encoding {encoding}.")
        async with read_body(request, front.most_bytes, front.bodies) as body:
            given = (body, request.headers.get(HEADER_LENGTH), front.limits)
            inference = await off_loop(len(body), parse_inference, *given)
            reply = await self._answer(request, inference)
        if reply is None:
            return Response(status_code=_GONE)
        packed = await off_loop(reply.logits.nbytes, pack_reply, inference, reply, front.model)
        if packed.json_bytes is None:
            return Response(packed.content, media_type="application/json")
        headers = {HEADER_LENGTH: str(packed.json_bytes)}
        return Response(packed.content, 200, headers, "application/octet-stream")

    async def _answer(self, request: Request, inference: Inference) -> Reply | None:
        """Return the service's reply, or None if the client disconnected first; the request is then cancelled."""
        right: Right = request.state.right
        known = self._front.shapes.known(tuple(inference.images.shape[1:]))
        submit = partial(self._front.submit, inference, right)
        answer = asyncio.wrap_future(submit() if known else await run_in_threadpool(submit))
        gone = asyncio.ensure_future(until_disconnect(request))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            return await answer if answer.done() else None
        finally:
            gone.cancel()
            answer.cancel()


def _error_reply(error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return json_reply(
            {"error": error.detail, "type": "HTTPException"}, error.status_code, dict(error.headers or {})
        )
    status = status_of(error)
    headers: dict[str, str] = {}
    if not isinstance(error, CttaError):
        logger.error("a request failed", exc_info=error)
    if status.retry_after is not None:
        headers["Retry-After"] = str(status.retry_after)
    if status.http == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # Details of an internal error, with paths and values, belong in the log.
    said = str(error) if isinstance(error, CttaError) else "The service failed; its log tells why."
    return json_reply({"error": said, "type": type(error).__name__}, status.http, headers)
