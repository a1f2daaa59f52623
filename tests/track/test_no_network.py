"""Tracking never uses the network: Python's own sockets are watched, and other programs are sent to a proxy of ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.track

#: Prints every connection and every look-up of a name that Python makes, then does what the words say.
_WATCHED = """
import socket, sys, urllib.request

def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo") and not isinstance(arguments[-1], (str, bytes)):
        print("NETWORK", event, arguments, flush=True)

sys.addaudithook(watch)
if sys.argv[1] == "ask":
    try:
        urllib.request.urlopen("http://ctta.invalid/")
    except OSError:
        pass
else:
    from ctta.cli import main
    sys.argv[0] = "ctta"
    main()
"""


@contextmanager
def proxy() -> Iterator[tuple[int, list[object]]]:
    """Listen as a proxy; yield the port and the connections that came, each of which is closed at once."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    connection, address = listening.accept()
                except OSError:
                    return
                came.append(address)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1], came
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def run(folder: Path, *words: object) -> tuple[list[str], list[object]]:
    """Run a command; return the connections that it made itself, and those that the proxy saw."""
    switches = {"MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "WANDB_ERROR_REPORTING", "WANDB_MODE", "CI"}
    with proxy() as (port, came):
        address = f"http://127.0.0.1:{port}"
        environment = {name: value for name, value in os.environ.items() if name not in switches}
        environment |= {name: address for both in ("HTTP", "HTTPS", "ALL") for name in (f"{both}_PROXY",)}
        environment |= dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), address)
        environment |= {"HOME": str(folder), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", _WATCHED, *map(str, words)],
            check=True,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
        )
    return [line for line in done.stdout.splitlines() if line.startswith("NETWORK")], came


def test_the_watch_and_the_proxy_see_a_connection(tmp_path: Path) -> None:
    own, proxied = run(tmp_path, "ask")
    assert own and proxied


def test_no_sink_uses_the_network(tmp_path: Path) -> None:
    targets = [word for sink in ("tensorboard", "mlflow", "wandb") for word in ("--track", f"{sink}:{sink}")]
    few = ("--images", "10", "--batch-size", "5", "--corruptions", "fog,snow", "--quiet")
    assert run(tmp_path, "run", "bn", "digits", *few, *targets) == ([], [])
    assert (tmp_path / "mlflow" / "mlflow.db").exists()
    assert list((tmp_path / "wandb").glob("wandb/offline-run-*/run-*.wandb"))
    assert list((tmp_path / "tensorboard").glob("*/events.out.tfevents.*"))
