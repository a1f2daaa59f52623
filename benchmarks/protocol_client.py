"""A client in its own process, without torch, so that its CPU time is not the server's.

It reads commands from stdin, one JSON object a line, sends the request in a file as often as the command says over one
connection, and writes a line when all replies are there.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def http_sender(port: int, path: str, headers: dict[str, str]) -> Callable[[bytes], None]:
    """Return a function that posts a body and reads the whole reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def send(body: bytes) -> None:
        connection.request("POST", path, body, headers)
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"status {reply.status}: {content[:200]!r}")

    return send


def grpc_sender(port: int, path: str, headers: dict[str, str]) -> Callable[[bytes], None]:
    """Return a function that calls a method with a packed message."""
    import grpc  # noqa: PLC0415 - of another extra

    call: Any = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary(path)

    def send(body: bytes) -> None:
        call(body, timeout=600)

    return send


SENDERS = {"http": http_sender, "grpc": grpc_sender}


def main() -> None:
    """Serve commands until stdin ends."""
    known: dict[str, tuple[Callable[[bytes], None], bytes]] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command["name"]
        if name not in known:
            sender = SENDERS[command["front"]](command["port"], command["path"], command["headers"])
            known[name] = (sender, Path(command["body"]).read_bytes())
        send, body = known[name]
        for _ in range(command["count"]):
            send(body)
        print("done", flush=True)


if __name__ == "__main__":
    main()
