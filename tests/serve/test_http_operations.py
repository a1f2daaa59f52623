"""Operations over HTTP: pins, removals, uploads, and what a full disk does to them."""

from __future__ import annotations

import errno
import http.client
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from ctta.serve import operations
from serve.engine import LIMITS, images
from serve.http_server import INFER, request, running

pytestmark = pytest.mark.serve

DEFAULT = "/ctta/streams/default"


def test_a_snapshot_is_pinned_and_released_by_name() -> None:
    with running(limits=replace(LIMITS, keep=1)) as server:
        server.call("POST", INFER, request(images(4)))
        name = server.call("POST", f"{DEFAULT}/snapshot", {"pin": True}).json()["name"]
        path = f"{DEFAULT}/snapshots/{name}"
        for pin in (False, True, False):
            said = server.call("PUT", path, {"pin": pin}).json()
            assert (said["name"], said["pinned"]) == (name, pin)
        server.call("POST", f"{DEFAULT}/snapshot")
        assert name not in [one["name"] for one in server.call("GET", DEFAULT).json()["snapshots"]]
        assert server.call("PUT", path, {"pin": True}).status == 404
        for wrong in ({}, {"pin": "yes"}, {"pin": None}):
            assert server.call("PUT", path, wrong).status == 400


def test_a_removed_stream_is_gone_from_status_and_metrics_and_makes_room_for_another() -> None:
    with running(limits=replace(LIMITS, streams=1)) as server:
        for stream in ("site/a", "b"):
            said = server.call("POST", INFER, request(images(4), parameters={"sequence_id": stream}))
            assert said.status == 200
            text = server.call("GET", "/metrics").content.decode()
            assert set(re.findall(r'stream="([^"]+)"', text)) == {stream}
            assert f'ctta_answer_seconds_count{{stream="{stream}"}} 1.0' in text
            path = f"/ctta/streams/{stream.replace('/', '%2F')}"
            assert server.call("DELETE", path).json()["answered"] == 4
            assert server.call("GET", path).status == server.call("DELETE", path).status == 404
        assert server.call("GET", "/ctta/streams").json()["streams"] == []


def test_the_log_of_a_removed_stream_ends() -> None:
    with running() as server, server.connect() as log:
        server.call("POST", INFER, request(images(4)))
        log.sendall(f"GET {DEFAULT}/log HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        lines = log.makefile("rb")
        assert b": alive\n" in lines
        server.call("DELETE", DEFAULT)
        events = [json.loads(line.removeprefix(b"data: ")) for line in until_end(lines) if line.startswith(b"data: ")]
        assert events[-1]["do"] == "remove"


def test_a_log_whose_stream_was_removed_as_it_began_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_MOST_LOGS", 1)
    with running() as server:
        server.call("POST", INFER, request(images(4)))
        with monkeypatch.context() as patch, pytest.raises(http.client.IncompleteRead):
            patch.setattr(server.service, "stream", lambda name: None)  # it is removed after this look at it
            server.call("GET", "/ctta/streams/gone/log")
        with server.connect() as log:
            log.sendall(f"GET {DEFAULT}/log HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert log.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


def until_end(lines: Any) -> Iterator[bytes]:
    """The lines of a chunked body up to its end."""
    for line in lines:
        if line == b"0\r\n":
            return
        yield line


def test_an_operation_that_cannot_be_saved_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with running() as server:
        server.call("POST", INFER, request(images(4)))
        monkeypatch.setattr("ctta.serve.history.write_atomically", full)
        said = server.call("PUT", f"{DEFAULT}/mode", {"mode": "frozen"})
        assert (said.status, said.json()["type"]) == (507, "NotSaved")
        assert "The new mode of stream 'default' is in effect, but could not be saved" in said.json()["error"]
        assert server.call("GET", DEFAULT).json()["mode"] == "frozen"
        assert server.call("POST", f"{DEFAULT}/snapshot").status == 507


def test_a_refused_upload_creates_no_stream_and_shows_no_path_of_the_server() -> None:
    with running() as server:
        refused = server.call("PUT", "/ctta/streams/new/state", b"junk")
        assert (refused.status, refused.json()["type"]) == (400, "NotACheckpoint")
        assert "got 4 bytes" in refused.json()["error"] and "/" not in refused.json()["error"]
        assert server.call("GET", "/ctta/streams/new").status == 404


def test_a_rollback_without_a_good_snapshot_is_a_conflict() -> None:
    with running() as server:
        server.call("POST", INFER, request(images(4)))
        server.call("PUT", f"{DEFAULT}/mode", {"mode": "frozen"})
        refused = server.call("POST", f"{DEFAULT}/rollback")
        assert (refused.status, refused.json()["type"]) == (409, "NoGoodSnapshot")
