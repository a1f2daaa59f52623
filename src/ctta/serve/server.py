"""Run the HTTP front end with uvicorn, until SIGTERM or SIGINT."""

from __future__ import annotations

import socket

from ctta.errors import MissingExtra, ParameterError
from ctta.serve.http import HttpFront

try:
    import uvicorn
except ModuleNotFoundError as error:
    raise MissingExtra("uvicorn", "serve") from error

#: Seconds that clients have to receive their replies, or to finish sending a request, when the server stops.
_GRACE = 30
#: Seconds that a connection stays open between two requests; clients that keep a pool expect about a minute.
_KEEP_ALIVE = 75
#: More connections at once are refused with 503.
_MOST_CONNECTIONS = 1000


class Server(uvicorn.Server):
    """Uvicorn with event streams that end when the server stops.

    Args:
        app: The application.
    """

    def __init__(self, app: HttpFront) -> None:
        # One worker: a second process would learn separately from the same state.
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="on",
                server_header=False,
                timeout_graceful_shutdown=_GRACE,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE,
                log_config=None,
            )
        )
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, finish what was accepted, and end the application's lifespan.

        Args:
            sockets: The sockets that it listens on.
        """
        self._app.stop_logs()
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Open the socket to listen on.

    Args:
        host: A name or an address of this machine.
        port: The port; 0 chooses a free one.

    Raises:
        ParameterError: If it cannot listen on the address.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()  # clients that connect before the server runs wait for it
    except OSError as error:
        raise ParameterError(f"{host}:{port} cannot be listened on: {error}. Choose another --listen.") from error
    return listening
