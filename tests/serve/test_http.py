"""The HTTP front end: correct statuses, limits checked before reading, rights, operations, and an orderly shutdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from ctta.serve.front import Budget
from ctta.serve.tokens import Right, Tokens
from serve.engine import LIMITS, WAIT, Held, classifier, held_learning, images, same, tent
from serve.http_server import HOST, INFER, Running, request, running

pytestmark = pytest.mark.serve

ASK, TEACH, ADMIN = "ask-0123456789abcdef", "teach-0123456789abcdef", "admin-0123456789abcdef"
TOKENS = Tokens({ASK: Right.ASK, TEACH: Right.TEACH, ADMIN: Right.ADMIN})


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(limits=replace(LIMITS, pixels=1 << 16, images=16, streams=4)) as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_stream_answers_over_http_as_its_adapter_would_alone(server: Running) -> None:
    alone = tent(classifier())
    for i in range(3):
        x = images(4, i)
        said = server.call("POST", INFER, request(x, id=f"r{i}", parameters={"sequence_id": "alone"})).json()
        (output,) = said["outputs"]
        assert torch.equal(torch.tensor(output["data"]).view(output["shape"]), alone.step(x).logits)
        assert said["id"] == f"r{i}"
        assert said["parameters"] == {"sequence_id": "alone", "steps": i, "mode": "adapt", "learnt": True}


def test_one_image_alone_is_answered(server: Running) -> None:
    said = server.call("POST", INFER, request(images(1), parameters={"sequence_id": "alone", "learn": False}))
    assert said.status == 200
    assert said.json()["outputs"][0]["shape"] == [1, 10]


def test_metadata_and_health(server: Running) -> None:
    assert server.call("GET", "/v2").json()["name"] == "ctta"
    assert server.call("GET", "/v2/health/live").status == 200
    assert server.call("GET", "/v2/health/ready").json() == {"ready": True}
    assert server.call("GET", "/v2/models/tiny/ready").status == 200
    assert server.call("GET", "/v2/models/tiny").json()["inputs"][0]["shape"] == [-1, 3, -1, -1]


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "/v2/models/other", None, 404),
        ("POST", "/v2/models/other/infer", {}, 404),
        ("GET", "/nothing", None, 404),
        ("DELETE", "/v2", None, 405),
        ("GET", "/page/../http.py", None, 404),
        ("POST", INFER, b"{", 400),
        ("POST", INFER, {"inputs": []}, 400),
        ("POST", INFER, request(torch.zeros(1, 1, 16, 16)), 400),  # the network has three channels
        ("POST", INFER, request(torch.zeros(17, 3, 4, 4)), 413),
        ("POST", INFER, request(torch.zeros(1, 3, 256, 256)), 413),
        ("GET", "/ctta/streams/unknown", None, 404),
        ("GET", "/ctta/streams/unknown/log", None, 404),
        ("POST", "/ctta/streams/unknown/reset", None, 404),
        ("PUT", "/ctta/streams/unknown/mode", {"mode": "frozen"}, 404),
        ("PUT", "/ctta/streams/unknown/mode", {"mode": "sleep"}, 400),
        ("PUT", "/ctta/streams/unknown/mode", b"[[", 400),
        ("POST", "/ctta/streams/unknown/snapshot", {"pin": "yes"}, 400),
        ("POST", "/ctta/streams/unknown/labels", {"labels": [1]}, 400),
        ("PUT", "/ctta/streams/new/state", b"no checkpoint", 400),
    ],
)
def test_bad_input_has_a_fitting_status_and_a_message(
    server: Running, method: str, path: str, content: Any, status: int
) -> None:
    said = server.call(method, path, content)
    assert said.status == status
    assert said.headers["content-type"] == "application/json"
    assert said.json()["error"]


@pytest.mark.parametrize(("channels", "said"), [(1, "1 channel"), (2, "2 channels")])
def test_a_shape_that_the_model_does_not_accept_is_named(server: Running, channels: int, said: str) -> None:
    refused = server.call("POST", INFER, request(torch.zeros(1, channels, 16, 16)))
    assert f"The model does not accept images with {said} and 16 x 16 pixels" in refused.json()["error"]


def test_channels_that_come_last_are_told_the_parameter_for_them(server: Running) -> None:
    refused = server.call("POST", INFER, request(torch.zeros(1, 16, 16, 3)))
    assert 'If the channels come last, give the input the parameter "layout": "NHWC".' in refused.json()["error"]
    assert "layout" not in server.call("POST", INFER, request(torch.zeros(1, 2, 16, 16))).json()["error"]


def test_a_compressed_body_is_refused(server: Running) -> None:
    assert server.call("POST", INFER, b"x", {"Content-Encoding": "gzip"}).status == 415


def test_a_declared_length_beyond_the_limit_is_refused_before_the_body_is_sent(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n" % INFER.encode()
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_is_refused_when_it_grows_too_large(server: Running) -> None:
    most = server.front.most_bytes
    with server.connect() as connection:
        connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" % INFER.encode()
        )
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(most // 0x100000 + 1):
            connection.sendall(chunk)
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_never_comes_is_given_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctta.serve.body._PATIENCE", 0.0)
    monkeypatch.setattr("ctta.serve.body._SLOWEST", float("inf"))
    with server.connect() as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n" % INFER.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_all_bodies_together_have_a_limit_and_give_their_share_back() -> None:
    raw = json.dumps(request(images(2))).encode()
    with running() as server:
        server.front.bodies = Budget(len(raw) - 1)
        refused = server.call("POST", INFER, raw)
        assert (refused.status, refused.json()["type"]) == (503, "QueueFull")
        server.front.bodies = Budget(len(raw))
        assert [server.call("POST", INFER, raw).status for _ in range(3)] == [200] * 3


def test_another_stream_than_may_be_is_refused_and_the_others_go_on() -> None:
    with running(limits=replace(LIMITS, streams=1)) as server:
        assert server.call("POST", INFER, request(images(2), parameters={"sequence_id": "one"})).status == 200
        refused = server.call("POST", INFER, request(images(2), parameters={"sequence_id": "two"}))
        assert (refused.status, refused.json()["type"]) == (429, "TooManyStreams")
        assert server.call("POST", INFER, request(images(2), parameters={"sequence_id": "one"})).status == 200


def test_a_full_queue_says_when_to_try_again_and_a_client_that_goes_away_is_not_answered() -> None:
    with held_learning() as make, running(make, limits=replace(LIMITS, queue=4)) as server:
        assert server.call("POST", INFER, request(images(2))).status == 200
        assert Held.learning.wait(WAIT)
        raw = json.dumps(request(images(4))).encode()
        head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (INFER.encode(), len(raw))
        with server.connect() as waiting:
            waiting.sendall(head + raw)
            inbox = server.service._lanes["default"]._inbox
            with inbox._changed:
                assert inbox._changed.wait_for(lambda: inbox._requests, WAIT)
                (waits,) = inbox._requests
            full = server.call("POST", INFER, request(images(2)))
            assert (full.status, full.json()["type"]) == (503, "QueueFull")
            assert int(full.headers["retry-after"]) >= 1
        with pytest.raises(CancelledError):
            waits.future.result(WAIT)
        Held.gate.set()
        while (again := server.call("POST", INFER, request(images(2)))).status == 503:
            assert again.json()["type"] == "QueueFull"
        assert server.service.stream("default").answered == 4


def test_a_damaged_stream_is_refused_and_counted_until_it_is_repaired() -> None:
    with running() as server:
        folder = server.service._folders.of("a")
        folder.mkdir(parents=True)
        (folder / "snapshots.json").write_text("{")
        asked = request(images(2), parameters={"sequence_id": "a"})
        assert "ctta_damaged_streams 0.0" in server.call("GET", "/metrics").content.decode()
        said = server.call("POST", INFER, asked)
        assert (said.status, said.json()["type"]) == (500, "DamagedStream")
        assert "ctta_damaged_streams 1.0" in server.call("GET", "/metrics").content.decode()
        (folder / "snapshots.json").unlink()
        assert server.call("POST", INFER, asked).status == 200
        assert "ctta_damaged_streams 0.0" in server.call("GET", "/metrics").content.decode()


def test_a_stopped_learner_is_unavailable_and_other_streams_answer() -> None:
    with running() as server:
        server.call("POST", INFER, request(images(2), parameters={"sequence_id": "a"}))
        assert server.call("GET", "/v2/health/ready").status == 200
        server.service._lanes["a"]._inbox.stop(RuntimeError("gone"))
        assert server.call("GET", "/v2/health/ready").status == 503
        said = server.call("POST", INFER, request(images(2), parameters={"sequence_id": "a"}))
        assert (said.status, said.json()["type"]) == (503, "LearnerStopped")
        assert "retry-after" in said.headers
        assert server.call("POST", INFER, request(images(2), parameters={"sequence_id": "b"})).status == 200
        assert server.call("GET", "/ctta/streams/a").json()["stopped"] == "RuntimeError('gone')"
        assert 'ctta_stopped{stream="a"} 1.0' in server.call("GET", "/metrics").content.decode()
        assert server.call("POST", "/ctta/streams/b/restart").status == 409
        assert server.call("POST", "/ctta/streams/nobody/restart").status == 404
        assert server.call("POST", "/ctta/streams/a/restart").json()["stopped"] is None
        assert server.call("POST", INFER, request(images(2), parameters={"sequence_id": "a"})).status == 200
        assert server.call("GET", "/v2/health/ready").status == 200


def test_a_stream_may_be_called_other() -> None:
    with running() as server:
        server.call("POST", INFER, request(images(2), parameters={"sequence_id": "other"}))
        assert 'ctta_images_total{stream="other"} 2.0' in server.call("GET", "/metrics").content.decode()


def test_operations_on_a_stream_with_a_slash_in_its_name() -> None:
    base = "/ctta/streams/site%2Fcam%201"
    with running() as server:
        for i in range(2):
            server.call("POST", INFER, request(images(4, i), id=f"r{i}", parameters={"sequence_id": "site/cam 1"}))
        labels = {"labels": {"r0": [0, 1, 2, 3], "never": [1]}}
        scored = server.call("POST", f"{base}/labels", labels).json()
        assert (scored["labelled"], scored["unknown"]) == (4, ["never"])
        assert server.call("POST", f"{base}/labels", {"labels": {"r0": [10, 0, 0, 0]}}).status == 400
        pinned = server.call("POST", f"{base}/snapshot", {"pin": True}).json()
        assert pinned["pinned"] and pinned["steps"] == 2
        state = server.call("GET", f"{base}/state")
        assert state.headers["content-type"] == "application/octet-stream"
        assert server.call("POST", f"{base}/reset").json()["steps"] == 0
        assert server.call("PUT", f"{base}/state", state.content).json()["steps"] == 2
        assert same(server.call("GET", f"{base}/state").content, state.content)
        assert server.call("POST", f"{base}/promote").status == 409
        assert server.call("PUT", f"{base}/mode", {"mode": "shadow"}).json()["mode"] == "shadow"
        assert server.call("POST", f"{base}/promote").status == 200
        assert server.call("POST", f"{base}/rollback", {"snapshot": "99"}).status == 404
        assert server.call("POST", f"{base}/rollback", {"snapshot": pinned["name"]}).json()["name"] == pinned["name"]
        assert [s["name"] for s in server.call("GET", "/ctta/streams").json()["streams"]] == ["site/cam 1"]


def test_the_log_sends_events_and_ends_with_the_server() -> None:
    with running() as server:
        server.call("POST", INFER, request(images(4)))
        log = server.connect()
        log.sendall(b"GET /ctta/streams/default/log HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        lines = log.makefile("rb")
        assert next(lines).startswith(b"HTTP/1.1 200")
        assert b": alive\n" in lines
        server.call("POST", "/ctta/streams/default/reset")
        events = (json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: "))
        event = next(event for event in events if event["do"] == "reset")
        assert (event["stream"], event["steps"]) == ("default", 0)
    with log, lines:
        assert lines.read().endswith(b"0\r\n\r\n")


def test_metrics_count_requests_images_and_streams_without_unbounded_labels() -> None:
    with running(limits=replace(LIMITS, streams=2)) as server:
        for stream in ("a", "b", "c", "d"):
            server.call("POST", INFER, request(images(3), parameters={"sequence_id": stream}))
        said = server.call("GET", "/metrics")
        text = said.content.decode()
        assert said.headers["content-type"].startswith("text/plain")
        assert 'ctta_images_total{stream="a"} 3.0' in text
        assert 'ctta_requests_total{code="200",front="http"} 2.0' in text
        assert 'ctta_requests_total{code="429",front="http"} 2.0' in text
        assert 'ctta_answer_seconds_count{stream="b"} 1.0' in text
        assert 'ctta_guard_phase{phase="ok",stream="a"} 1.0' in text
        assert set(re.findall(r'stream="(\w+)"', text)) == {"a", "b"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(tokens=TOKENS) as found:
        yield found


@pytest.mark.parametrize("headers", [{}, bearer("wrong-0123456789abcdef"), {"Authorization": f"Basic {ADMIN}"}])
def test_without_a_known_token_only_health_and_the_page_are_open(guarded: Running, headers: dict[str, str]) -> None:
    refused = guarded.call("POST", INFER, request(images(2)), headers)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    for path in ("/v2/models/tiny", "/metrics", "/ctta/streams"):
        assert guarded.call("GET", path, headers=headers).status == 401
    for path in ("/", "/v2", "/v2/health/live", "/v2/health/ready", "/openapi.json"):
        assert guarded.call("GET", path, headers=headers).status == 200


def test_who_may_only_ask_is_answered_and_not_learnt(guarded: Running) -> None:
    taught = guarded.call("POST", INFER, request(images(4)), bearer(TEACH)).json()
    asked = guarded.call("POST", INFER, request(images(4)), bearer(ASK)).json()
    assert [asked["parameters"]["learnt"], taught["parameters"]["learnt"]] == [False, True]
    labels = {"labels": {}}
    assert guarded.call("POST", "/ctta/streams/default/labels", labels, bearer(ASK)).status == 403
    assert guarded.call("POST", "/ctta/streams/default/labels", labels, bearer(TEACH)).status == 200


def test_who_may_only_ask_creates_no_stream(guarded: Running) -> None:
    new = request(images(2), parameters={"sequence_id": "new"})
    refused = guarded.call("POST", INFER, new, bearer(ASK))
    assert (refused.status, refused.json()["type"]) == (403, "NotAllowed")
    assert "a new one needs a token with the right teach; got one with ask" in refused.json()["error"]
    assert guarded.call("GET", "/ctta/streams/new", None, bearer(ASK)).status == 404
    assert guarded.call("POST", INFER, new, bearer(TEACH)).status == 200
    assert guarded.call("POST", INFER, new, bearer(ASK)).status == 200


def test_only_an_administrator_changes_streams(guarded: Running) -> None:
    guarded.call("POST", INFER, request(images(2)), bearer(TEACH))
    for token, status in ((ASK, 403), (TEACH, 403), (ADMIN, 200)):
        assert guarded.call("POST", "/ctta/streams/default/reset", None, bearer(token)).status == status
        assert guarded.call("GET", "/ctta/streams/default/state", None, bearer(token)).status == status
        pin = guarded.call("PUT", "/ctta/streams/default/snapshots/1", {"pin": True}, bearer(token))
        assert pin.status == (404 if status == 200 else status)
        assert guarded.call("DELETE", "/ctta/streams/unknown", None, bearer(token)).status == pin.status
    assert guarded.call("GET", "/ctta/streams", None, bearer(ASK)).status == 200


def test_pages_of_other_sites_cannot_use_a_browser_to_reach_an_open_service(server: Running) -> None:
    assert server.call("GET", "/v2", headers={"Host": "evil.example"}).status == 403
    assert server.call("POST", "/ctta/streams/x/reset", headers={"Origin": "http://evil.example"}).status == 403
    own = f"http://{HOST}:{server.port}"
    assert server.call("GET", "/v2", headers={"Origin": own}).status == 200
    assert server.call("GET", "/v2", headers={"Host": "localhost:1"}).status == 200


def test_the_page_and_the_description_are_served(server: Running) -> None:
    page = server.call("GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    for path in re.findall(r'(?:src|href)="(page/[^"]+)"', page.content.decode()):
        assert server.call("GET", f"/{path}").status == 200
    assert server.call("GET", "/openapi.json").json()["openapi"] == "3.1.0"
