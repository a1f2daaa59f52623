"""The operations on streams over HTTP: status, modes, snapshots, labels, states, and a log of events."""

from __future__ import annotations

import asyncio
import math
import queue
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

from ctta._checks.arguments import shown
from ctta.errors import MissingExtra, QueueFull, RequestError
from ctta.serve.body import json_reply, read_body
from ctta.serve.front import Front
from ctta.serve.protocol import stream_name
from ctta.serve.tokens import Right
from ctta.serve.types import MODES, Mode
from ctta.serve.wire import MOST_JSON, dump_json, option, parse_json, parse_labels

try:
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
except ModuleNotFoundError as error:
    raise MissingExtra("starlette", "serve") from error

#: Replies to a request.
Handler = Callable[[Request], Awaitable[Response]]

_MOST_LOGS = 64
#: Seconds between two checks for events, and between two keep-alive messages.
_LOOK = 0.1
_ALIVE = 10.0
_SIGN = b": alive\n\n"


@dataclass(frozen=True)
class Operation:
    """One operation.

    Args:
        path: Its path below ``/ctta/streams``.
        method: Its HTTP method.
        right: The right that it needs.
        handler: Performs it and replies.
    """

    path: str
    method: str
    right: Right
    handler: Handler


class Operations:
    """The handlers of ``/ctta/streams``.

    Args:
        front: The service.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self._service = front.service
        self._logs = 0
        self.closing = False

    def routes(self) -> tuple[Operation, ...]:
        """Return every operation."""
        return (
            Operation("", "GET", Right.ASK, self._list),
            Operation("/{stream}", "GET", Right.ASK, self._show),
            Operation("/{stream}", "DELETE", Right.ADMIN, self._remove),
            Operation("/{stream}/log", "GET", Right.ASK, self._log),
            Operation("/{stream}/labels", "POST", Right.TEACH, self._labels),
            Operation("/{stream}/mode", "PUT", Right.ADMIN, self._mode),
            Operation("/{stream}/reset", "POST", Right.ADMIN, self._reset),
            Operation("/{stream}/restart", "POST", Right.ADMIN, self._restart),
            Operation("/{stream}/snapshot", "POST", Right.ADMIN, self._snapshot),
            Operation("/{stream}/snapshots/{snapshot}", "PUT", Right.ADMIN, self._pin),
            Operation("/{stream}/rollback", "POST", Right.ADMIN, self._rollback),
            Operation("/{stream}/promote", "POST", Right.ADMIN, self._promote),
            Operation("/{stream}/state", "GET", Right.ADMIN, self._state),
            Operation("/{stream}/state", "PUT", Right.ADMIN, self._put_state),
        )

    async def _list(self, request: Request) -> Response:
        """Reply with the model's name and the status of every stream."""
        found = await run_in_threadpool(self._service.streams)
        return json_reply({"model": self._front.model.name, "streams": [plain(asdict(status)) for status in found]})

    async def _show(self, request: Request) -> Response:
        """Reply with the status of one stream."""
        return await self._status(_stream(request))

    async def _remove(self, request: Request) -> Response:
        """Remove the stream and its files; reply with its last status."""
        stream = _stream(request)
        last = await self._status(stream)
        await run_in_threadpool(self._front.remove, stream)
        return last

    async def _mode(self, request: Request) -> Response:
        """Change the mode: ``{"mode": "frozen"}``."""
        stream, message = _stream(request), await self._message(request)
        wanted = option(message, "mode", str, "")
        mode: Mode | None = next((known for known in MODES if known == wanted), None)
        if mode is None:
            raise RequestError(f"'mode' must be one of {', '.join(MODES)}; got {shown(message.get('mode'))}.")
        await run_in_threadpool(self._service.set_mode, stream, mode)
        return await self._status(stream)

    async def _reset(self, request: Request) -> Response:
        """Return the stream to the source."""
        stream = _stream(request)
        await self._message(request)
        await run_in_threadpool(self._service.reset, stream)
        return await self._status(stream)

    async def _restart(self, request: Request) -> Response:
        """Restart a stream whose thread ended with an error, from its newest snapshot."""
        stream = _stream(request)
        await self._message(request)
        await run_in_threadpool(self._service.restart, stream)
        return await self._status(stream)

    async def _snapshot(self, request: Request) -> Response:
        """Take a snapshot: ``{"pin": true}`` keeps it."""
        pin = option(await self._message(request), "pin", bool, False)
        info = await run_in_threadpool(self._service.snapshot, _stream(request), pin)
        return json_reply(plain(asdict(info)))

    async def _pin(self, request: Request) -> Response:
        """Pin a snapshot or release it: ``{"pin": false}``."""
        message = await self._message(request)
        pin = option(message, "pin", bool)
        if pin is None:
            raise RequestError("'pin' must be true or false; got none.")
        info = await run_in_threadpool(self._service.pin, _stream(request), _of_path(request, "snapshot"), pin)
        return json_reply(plain(asdict(info)))

    async def _rollback(self, request: Request) -> Response:
        """Return to a snapshot: ``{"snapshot": "00000012"}``, or to the newest good one with fewer steps."""
        name = option(await self._message(request), "snapshot", str)
        info = await run_in_threadpool(self._service.rollback, _stream(request), name)
        return json_reply(plain(asdict(info)))

    async def _promote(self, request: Request) -> Response:
        """Swap champion and challenger of a stream in shadow mode."""
        stream = _stream(request)
        await self._message(request)
        await run_in_threadpool(self._service.promote, stream)
        return await self._status(stream)

    async def _labels(self, request: Request) -> Response:
        """Score earlier predictions: ``{"labels": {"request id": [3, 1, 4]}}``."""
        async with read_body(request, MOST_JSON, self._front.bodies) as body:
            labels = parse_labels(body)
        report = await run_in_threadpool(self._service.labels, _stream(request), labels)
        return json_reply(plain(asdict(report)))

    async def _state(self, request: Request) -> Response:
        """Reply with the adapter as a checkpoint file."""
        data = await run_in_threadpool(self._service.state, _stream(request))
        return Response(data, media_type="application/octet-stream")

    async def _put_state(self, request: Request) -> Response:
        """Replace the adapter, in shadow mode the challenger, with a checkpoint file of the same method and source."""
        stream = stream_name(_stream(request))
        async with read_body(request, self._front.most_state_bytes, self._front.bodies) as data:
            await run_in_threadpool(self._service.put_state, stream, bytes(data))
        return await self._status(stream)

    async def _log(self, request: Request) -> Response:
        """Send the stream's events as they come, as server-sent events."""
        stream = _stream(request)
        if self._logs >= _MOST_LOGS:
            raise QueueFull(f"{_MOST_LOGS} clients read the logs of streams, as many as may. Close one.", 10.0)
        self._service.stream(stream)
        return StreamingResponse(self._events(stream), media_type="text/event-stream", headers=_LIVE)

    async def _events(self, stream: str) -> AsyncIterator[bytes]:
        events = self._service.subscribe(stream)
        self._logs += 1
        try:
            yield _SIGN
            silent = 0.0
            while not self.closing:
                try:
                    event = events.get_nowait()
                except queue.Empty:
                    await asyncio.sleep(_LOOK)
                    silent += _LOOK
                    if silent >= _ALIVE:
                        silent = 0.0
                        yield _SIGN
                else:
                    silent = 0.0
                    yield b"data: %s\n\n" % dump_json(plain(event))
                    if event["do"] == "remove":
                        return
        finally:
            self._logs -= 1
            self._service.unsubscribe(stream, events)

    async def _message(self, request: Request) -> dict[str, Any]:
        async with read_body(request, MOST_JSON, self._front.bodies) as body:
            return parse_json(body) if body.strip() else {}

    async def _status(self, stream: str) -> Response:
        return json_reply(plain(asdict(await run_in_threadpool(self._service.stream, stream))))


_LIVE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def plain(value: Any) -> Any:
    """Convert a value for JSON: numbers that are not finite become null.

    Args:
        value: Dicts, lists and tuples of plain values.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _stream(request: Request) -> str:
    return _of_path(request, "stream")


def _of_path(request: Request, name: str) -> str:
    return unquote(request.path_params[name])
