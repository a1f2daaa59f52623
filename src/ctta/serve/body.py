"""Read the body of an HTTP request within limits, and reply in JSON."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from ctta.errors import MissingExtra, RequestTooLarge
from ctta.serve.front import Budget
from ctta.serve.wire import dump_json

try:
    import anyio
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
except ModuleNotFoundError as error:
    raise MissingExtra("starlette", "serve") from error

Result = TypeVar("Result")

#: Work on more bytes than this is done outside the event loop.
_LARGE = 1 << 16
#: A body must arrive within this many seconds, plus its largest size divided by this many bytes per second.
_PATIENCE = 60.0
_SLOWEST = 1 << 20


@contextlib.asynccontextmanager
async def read_body(request: Request, most: int, budget: Budget) -> AsyncIterator[bytearray]:
    """Read a body, and hold its share of the budget inside the context.

    Args:
        request: The request.
        most: Maximum size of this body in bytes: checked before it is read if its length is declared, otherwise while
            it arrives.
        budget: The budget of bytes for all bodies.

    Raises:
        RequestTooLarge: If the body is larger.
        QueueFull: If other requests hold too many bytes.
        HTTPException: If the body arrives too slowly.
    """
    _refuse_larger(int(request.headers.get("content-length", 0)), most)
    body = bytearray()
    try:
        # A client that never finishes its body must not hold its share forever.
        with anyio.move_on_after(_PATIENCE + most / _SLOWEST) as timer:
            async for chunk in request.stream():
                _refuse_larger(len(body) + len(chunk), most)
                budget.take(len(chunk))
                body += chunk
        if timer.cancelled_caught:
            raise HTTPException(408, "The body came too slowly. Send it again.")
        yield body
    finally:
        budget.give(len(body))


async def off_loop(size: int, do: Callable[..., Result], *given: Any) -> Result:
    """Call a function, in another thread if it has a lot to do.

    Args:
        size: How many bytes it works on.
        do: The function.
        given: Its arguments.
    """
    return do(*given) if size <= _LARGE else await run_in_threadpool(do, *given)


async def until_disconnect(request: Request) -> None:
    """Return when the client has gone away.

    Args:
        request: A request whose body was read.
    """
    with contextlib.suppress(asyncio.CancelledError, ClientDisconnect):
        while (await request.receive())["type"] != "http.disconnect":
            pass


def json_reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a reply in JSON.

    Args:
        value: What to send.
        status: The status code.
        headers: More headers.
    """
    return Response(dump_json(value), status, headers, "application/json")


def _refuse_larger(size: int, most: int) -> None:
    if size > most:
        raise RequestTooLarge(f"The body may have {most} bytes; got {size} or more. Send fewer images at once.")
