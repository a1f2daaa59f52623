"""ctta serve in its own process: the demo runs, SIGTERM loses nothing, and a second process is refused."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("starlette")
pytest.importorskip("sklearn")

from ctta.cli import app
from ctta.datasets.digits import digits
from ctta.serve.audit import STREAM_FILE, read_audit
from ctta.serve.demo import WEATHER, Camera, inference
from ctta.serve.index import read_index
from ctta.serve.wire import HEADER_LENGTH
from serve.engine import WAIT, ask, serving

pytestmark = pytest.mark.serve

CLIENTS = 4


def command(*words: object) -> list[str]:
    """The command line of ctta serve on a free port."""
    code = "from ctta.cli import main; main()"
    return [sys.executable, "-c", code, "serve", *map(str, words), "--listen", "127.0.0.1:0"]


@contextmanager
def served(*words: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command in a child process; yield it and the port it reports."""
    child = subprocess.Popen(
        command(*words), stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    try:
        assert child.stderr is not None
        line = child.stderr.readline()
        while line.startswith("gRPC at "):
            line = child.stderr.readline()
        found = re.search(r" at http://127\.0\.0\.1:(\d+)$", line.rstrip())
        assert found is not None, line + child.stderr.read()
        yield child, int(found[1])
    finally:
        child.kill()
        child.wait()
        if child.stderr is not None:
            child.stderr.close()


class Client(threading.Thread):
    """Sends requests until the server is gone, and remembers which were answered."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.number = number
        self.answered: list[str] = []
        self.refused: list[int] = []
        self.busy = threading.Event()

    def run(self) -> None:
        """Send requests one after the other on the same connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        x = torch.randint(
            0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(self.number)
        )
        try:
            for count in range(100_000):
                name = f"{self.number}-{count}"
                raw, length = inference("load", name, x)
                connection.request("POST", "/v2/models/digits/infer", raw, {HEADER_LENGTH: str(length)})
                reply = connection.getresponse()
                said = reply.read()
                if reply.status == 200:
                    assert json.loads(said[: int(reply.headers[HEADER_LENGTH])])["id"] == name
                    self.answered.append(name)
                else:
                    self.refused.append(reply.status)
                if count >= 2:
                    self.busy.set()
        except (OSError, http.client.HTTPException):
            pass  # the server is gone
        finally:
            connection.close()


def status(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    connection.request("GET", "/ctta/streams")
    found = json.loads(connection.getresponse().read())["streams"]
    connection.close()
    return {stream["name"]: stream for stream in found}


def test_the_demo_lives_and_sigterm_under_load_answers_all_that_was_accepted_and_saves(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    options = ("tent", "--demo", "--state", state, "--record", record, "--save-every", 5, "--keep", 1000)
    with served(*options) as (child, port):
        clients = [Client(port, number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        assert all(client.busy.wait(WAIT) for client in clients)
        while not all(status(port).get(name, {}).get("labelled") for name in WEATHER):
            assert child.poll() is None

        second = CliRunner().invoke(app, ["serve", "--demo", "--state", str(state), "--listen", "127.0.0.1:0"])
        assert second.exit_code == 1
        assert "StateInUse" in second.stderr

        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT) == -signal.SIGTERM
        for client in clients:
            client.join(WAIT)
            assert not client.is_alive()

    answered = {name for client in clients for name in client.answered}
    lines = list(read_audit(state / "streams" / "load" / STREAM_FILE))
    assert {name for line in lines for name, _ in line.requests} == answered
    assert not [code for client in clients for code in client.refused if code != 503]
    for name in ("load", *WEATHER):
        folder = state / "streams" / name
        learnt = [line.n for line in read_audit(folder / STREAM_FILE) if line.do == "learn"]
        index = read_index(folder)
        assert index is not None and learnt[-1] < int(index.entries[-1].info.name)

    again = CliRunner().invoke(
        app,
        [
            *("replay", str(state / "streams" / "load"), str(record), "--method", "tent", "--model", "digits_resnet8"),
            *("--recipe", "digits", "--json"),
        ],
    )
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert found["compared"] and not found["different"]


def test_the_demo_is_learnt_from_again_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        name, x, _labels = Camera("street", digits().stream, seed=0).next()
        with serving(tmp_path) as service:
            assert ask(service, x / 255, "street", id=name).learnt


def test_the_method_that_is_chosen_for_the_model_is_logged(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("too\nfew\n", encoding="utf-8")  # it ends before it serves
    words = ("--model", "digits_resnet8", "--state", tmp_path / "state", "--class-names", names)
    ended = subprocess.run(command(*words), stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert "INFO method trio\n" in ended.stderr


class GrpcClient(threading.Thread):
    """Sends requests over gRPC until the server is gone, and remembers which were answered."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.number = number
        self.answered: list[str] = []
        self.failures: list[str] = []
        self.busy = threading.Event()

    def run(self) -> None:
        """Send requests one after the other."""
        triton = pytest.importorskip("tritonclient.grpc")
        images = triton.InferInput("images", [4, 3, 32, 32], "UINT8")
        images.set_data_from_numpy(torch.full((4, 3, 32, 32), 50 * self.number, dtype=torch.uint8).numpy())
        with triton.InferenceServerClient(self.address) as client:
            while not self.failures:
                name = f"{self.number}-{len(self.answered)}"
                try:
                    reply = client.infer("digits", [images], request_id=name, sequence_id="load")
                except triton.InferenceServerException as error:
                    self.failures.append(error.status())
                else:
                    assert reply.get_response().id == name
                    self.answered.append(name)
                if len(self.answered) >= 3:
                    self.busy.set()


def test_sigterm_under_load_over_grpc_answers_all_that_was_accepted_and_saves(tmp_path: Path) -> None:
    pytest.importorskip("tritonclient.grpc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with served("tent", "--demo", "--state", tmp_path, "--grpc", port) as (child, _):
        clients = [GrpcClient(f"127.0.0.1:{port}", number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        assert all(client.busy.wait(WAIT) for client in clients)
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT) == -signal.SIGTERM
        for client in clients:
            client.join(WAIT)
            assert not client.is_alive()
    assert {failure for client in clients for failure in client.failures} == {"StatusCode.UNAVAILABLE"}
    folder = tmp_path / "streams" / "load"
    lines = list(read_audit(folder / STREAM_FILE))
    assert {name for line in lines for name, _ in line.requests} == {n for c in clients for n in c.answered}
    index = read_index(folder)
    learnt = [line.n for line in lines if line.do == "learn"]
    assert index is not None and learnt[-1] < int(index.entries[-1].info.name)
