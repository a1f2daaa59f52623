"""The gRPC front end: the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from ctta.errors import CttaError, MissingExtra, ParameterError, RequestError, ServiceClosing
from ctta.serve.front import Front
from ctta.serve.service import CLOSING
from ctta.serve.status import status_of
from ctta.serve.tokens import Right

try:
    import grpc
    from google.protobuf.message import DecodeError

    from ctta.serve.grpc_messages import MESSAGES, SERVICE
    from ctta.serve.grpc_wire import most_bytes, pack_model_metadata, pack_reply, pack_server_metadata, parse_inference
except ModuleNotFoundError as error:
    raise MissingExtra("grpcio", "serve-grpc") from error

logger = logging.getLogger("ctta")

#: Maximum number of concurrent requests; each holds its message. More are refused with RESOURCE_EXHAUSTED.
_MOST_CALLS = 1024
#: At shutdown, how often to check for new requests, and for how many seconds each time.
_DRAIN_LOOKS, _DRAIN_SECONDS = 20, 0.2
#: Details are sent in a header, whose size clients limit.
_LONGEST_DETAILS = 1000

Handler = Callable[[Any, Right | None], Awaitable[Any]]


class GrpcServer:
    """A gRPC server in its own thread, with its own event loop.

    Args:
        front: The service behind it.
        address: Host and port to listen on, such as "127.0.0.1:8001"; port 0 chooses a free one.
        grace: Maximum number of seconds to finish accepted requests when the server stops.
    """

    def __init__(self, front: Front, address: str, grace: float = 30.0) -> None:
        self._front = front
        self._address = address
        self._grace = grace
        self._started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="ctta-grpc", daemon=True)

    def start(self) -> int:
        """Listen, and return the port.

        Raises:
            ParameterError: If it cannot listen there.
        """
        self._thread.start()
        port, _, _ = self._started.result()
        return port

    def stop(self) -> None:
        """Accept no more requests, answer those accepted, and stop. Without an earlier `start`, do nothing."""
        if not self._thread.is_alive():
            return
        _, loop, stopping = self._started.result()
        loop.call_soon_threadsafe(stopping.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if self._started.done():
                logger.exception("the gRPC server stopped")
            else:
                self._started.set_exception(error)

    async def _serve(self) -> None:
        handlers = _Handlers(self._front)
        server = grpc.aio.server(
            interceptors=[handlers],
            maximum_concurrent_rpcs=_MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", most_bytes(self._front.limits)),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # a second process on the port must fail, not share it
            ],
        )
        server.add_generic_rpc_handlers((handlers.generic(),))
        try:
            port = server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise ParameterError(f"{self._address} cannot be listened on: {error}. Choose another --grpc.") from error
        await server.start()
        stopping = asyncio.Event()
        self._started.set_result((port, asyncio.get_running_loop(), stopping))
        await stopping.wait()
        await handlers.drain()
        await server.stop(self._grace)


class _Handlers(grpc.aio.ServerInterceptor):  # type: ignore[misc] # grpcio has no types
    """The methods of the service."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._closing = False
        self._refused = 0
        #: Every method with the right it needs; None is open to everybody, so that a probe needs no token.
        self._methods: dict[str, tuple[Handler, Right | None]] = {
            "ServerLive": (self._live, None),
            "ServerReady": (self._ready, None),
            "ModelReady": (self._model_ready, Right.ASK),
            "ServerMetadata": (self._server_metadata, None),
            "ModelMetadata": (self._model_metadata, Right.ASK),
            "ModelInfer": (self._infer, Right.ASK),
        }

    def generic(self) -> Any:
        """Return the handler to register with a server."""
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._method(name, handler, needed), response_serializer=MESSAGES[f"{name}Response"].SerializeToString
            )
            for name, (handler, needed) in self._methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Refuse a call without a valid token before its message is read.

        Args:
            continuation: Finds the handler of the call.
            details: The call's method and metadata.
        """
        _, needed = self._methods.get(details.method.rpartition("/")[2], (None, None))
        try:
            if needed is not None:
                self._front.tokens.right_of(_authorization(details.invocation_metadata))
        except CttaError as error:
            refusal = error

            async def refuse(messages: Any, context: Any) -> None:
                await self._refuse(refusal, context)

            return grpc.stream_stream_rpc_method_handler(refuse)  # unlike others, it reads no message by itself
        return await continuation(details)

    async def drain(self) -> None:
        """Refuse new requests with UNAVAILABLE until no more arrive, or for a few seconds.

        A server that stops cancels calls that have arrived but whose handlers have not started. To the client it would
        look as if it had cancelled them itself, and it would not retry.
        """
        self._closing = True
        for _ in range(_DRAIN_LOOKS):
            before = self._refused
            await asyncio.sleep(_DRAIN_SECONDS)
            if self._refused == before:
                return

    def _method(self, name: str, handler: Handler, needed: Right | None) -> Callable[[bytes, Any], Awaitable[Any]]:
        """Wrap a handler with what all of them share: reading the message and the token, errors, counting."""
        kind = MESSAGES[f"{name}Request"]

        async def method(data: bytes, context: Any) -> Any:
            try:
                right = (
                    None
                    if needed is None
                    else self._front.tokens.right_of(_authorization(context.invocation_metadata()))
                )
                # A probe must succeed however many requests are being answered.
                with self._front.bodies.held(len(data) if name == "ModelInfer" else 0):
                    reply = await handler(_parse(kind, data), right)
            except asyncio.CancelledError:
                # The client gave up: the request ends with its call, unless its batch has started.
                self._front.metrics.request("grpc", "CANCELLED")
                raise
            except Exception as error:  # noqa: BLE001, every error is a reply
                await self._refuse(error, context)
            self._front.metrics.request("grpc", "OK")
            return reply

        return method

    async def _refuse(self, error: Exception, context: Any) -> None:
        status = status_of(error)
        known = isinstance(error, CttaError)
        if not known:
            logger.error("a gRPC request failed", exc_info=error)
        self._front.metrics.request("grpc", status.grpc)
        details = str(error) if known else "The service could not answer; its log says why."
        later = [] if status.retry_after is None else [("grpc-retry-pushback-ms", str(1000 * status.retry_after))]
        await context.abort(grpc.StatusCode[status.grpc], details[:_LONGEST_DETAILS], tuple(later))

    async def _live(self, message: Any, right: Right | None) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def _ready(self, message: Any, right: Right | None) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self._is_ready())

    async def _model_ready(self, message: Any, right: Right | None) -> Any:
        self._front.check_model(message.name, message.version)
        return MESSAGES["ModelReadyResponse"](ready=self._is_ready())

    def _is_ready(self) -> bool:
        return self._front.service.ready() and not self._closing

    async def _server_metadata(self, message: Any, right: Right | None) -> Any:
        return pack_server_metadata()

    async def _model_metadata(self, message: Any, right: Right | None) -> Any:
        self._front.check_model(message.name, message.version)
        return pack_model_metadata(self._front.model)

    async def _infer(self, message: Any, right: Right | None) -> Any:
        front = self._front
        if self._closing:
            self._refused += 1
            raise ServiceClosing(CLOSING)
        front.check_model(message.model_name, message.model_version)
        request = parse_inference(message, front.limits)
        shape = tuple(request.images.shape[1:])
        if not front.shapes.known(shape):
            await asyncio.to_thread(front.shapes.check, shape)
        reply = await asyncio.wrap_future(front.submit(request, right or Right.ASK))
        return pack_reply(request, reply, front.model)


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RequestError(f"The message is not a {kind.DESCRIPTOR.name} of the Open Inference Protocol.") from error


def _authorization(metadata: Any) -> str | None:
    values = [value for key, value in metadata or () if key == "authorization"]
    return values[0] if values and isinstance(values[0], str) else None
