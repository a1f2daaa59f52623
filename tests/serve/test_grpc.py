"""The gRPC front end, as the unmodified tritonclient sees it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ctta.errors import InputError, ParameterError, ServiceClosing
from ctta.serve.service import Service
from ctta.serve.types import Limits
from serve.engine import LIMITS, WAIT, Held, classifier, held_learning, images, serving, tent

pytestmark = pytest.mark.serve
grpc = pytest.importorskip("grpc", reason="needs the extra serve-grpc")
triton = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient")
pytest.importorskip("prometheus_client", reason="needs the extra serve")

from tritonclient.grpc import service_pb2  # noqa: E402

from ctta.serve.front import Front  # noqa: E402
from ctta.serve.grpc import GrpcServer, _Handlers  # noqa: E402
from ctta.serve.grpc_messages import MESSAGES  # noqa: E402
from ctta.serve.grpc_wire import parse_inference  # noqa: E402
from ctta.serve.tokens import Right, Tokens  # noqa: E402

SMALL = replace(LIMITS, images=8, pixels=8 * 3 * 16 * 16)


@contextmanager
def client_of(served: Service | Front, tokens: Tokens | None = None) -> Iterator[Any]:
    """A client connected to a gRPC server for the service."""
    front = served if isinstance(served, Front) else Front(served, classifier(), tokens)
    server = GrpcServer(front, "127.0.0.1:0")
    client = triton.InferenceServerClient(f"127.0.0.1:{server.start()}")
    try:
        yield client
    finally:
        client.close()
        server.stop()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """One server for all tests that need no limits of their own; each uses its own streams."""
    names = [f"class {i}" for i in range(classifier().num_classes)]
    with serving(limits=SMALL, class_names=names) as service, client_of(service) as client:
        yield client


def sent(x: Tensor, datatype: str = "FP32") -> list[Any]:
    """The input that holds some images."""
    tensor = triton.InferInput("images", list(x.shape), datatype)
    tensor.set_data_from_numpy(x.numpy())
    return [tensor]


def logits_of(result: Any) -> Tensor:
    """The logits of a reply."""
    return torch.from_numpy(result.as_numpy("logits").copy())


def parameters_of(result: Any) -> dict[str, Any]:
    """The parameters of a reply, as plain values."""
    found = result.get_response().parameters
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in found.items()}


def test_the_server_and_its_model_are_described(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("tiny")
    assert client.get_server_metadata().name == "ctta"
    model = client.get_model_metadata("tiny")
    assert [(one.name, one.datatype, list(one.shape)) for one in model.inputs] == [("images", "FP32", [-1, 3, -1, -1])]
    assert [(one.name, one.datatype, list(one.shape)) for one in model.outputs] == [
        ("logits", "FP32", [-1, classifier().num_classes])
    ]


def test_streams_answer_and_learn_as_their_adapters_would_alone(client: Any) -> None:
    alone = {7: tent(classifier()), "door": tent(classifier())}
    for number in range(3):
        for name, adapter in alone.items():
            x = images(8, seed=10 * number + len(str(name)))
            result = client.infer("tiny", sent(x), sequence_id=name, request_id=f"{name}-{number}")
            assert torch.equal(logits_of(result), adapter.step(x).logits)
            assert result.get_response().id == f"{name}-{number}"
            assert parameters_of(result) == {
                "sequence_id": str(name),
                "steps": number,
                "mode": "adapt",
                "learnt": True,
            }


def test_a_probe_is_answered_and_not_learnt(client: Any) -> None:
    x = images(8)
    for _ in range(2):
        result = client.infer("tiny", sent(x), sequence_id="probed", parameters={"learn": False})
        assert torch.equal(logits_of(result), tent(classifier()).predict(x))
        assert parameters_of(result)["learnt"] is False and parameters_of(result)["steps"] == 0


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_bytes_are_images_divided_by_255(client: Any, layout: str) -> None:
    pixels = (images(4) * 255).round().to(torch.uint8)
    inputs = sent(pixels if layout == "NCHW" else pixels.permute(0, 2, 3, 1).contiguous(), "UINT8")
    inputs[0]._get_tensor().parameters["layout"].string_param = layout
    result = client.infer("tiny", inputs, sequence_id=f"bytes {layout}", parameters={"learn": False})
    assert torch.equal(logits_of(result), tent(classifier()).predict(pixels.float() / 255))


def test_the_best_classes_come_with_scores_and_names(client: Any) -> None:
    x = images(4)
    wanted = [triton.InferRequestedOutput("logits", class_count=2)]
    result = client.infer("tiny", sent(x), outputs=wanted, sequence_id="classes", parameters={"learn": False})
    logits = tent(classifier()).predict(x).numpy()
    best = np.argsort(-logits, axis=1)[:, :2]
    found = [[text.decode().split(":") for text in row] for row in result.as_numpy("logits")]
    assert [[int(index) for _, index, _ in row] for row in found] == best.tolist()
    assert [[name for _, _, name in row] for row in found] == [[f"class {i}" for i in row] for row in best]
    scores = [[float(score) for score, _, _ in row] for row in found]
    assert np.allclose(scores, np.take_along_axis(logits, best, axis=1), atol=1e-5)


@pytest.mark.parametrize("datatype", ["FP32", "UINT8"])
def test_typed_contents_are_read_like_raw_ones(client: Any, datatype: str) -> None:
    pixels = (images(2) * 255).round()
    request = service_pb2.ModelInferRequest(model_name="tiny")
    request.parameters["learn"].bool_param = False
    tensor = request.inputs.add(name="images", datatype=datatype, shape=pixels.shape)
    if datatype == "FP32":
        tensor.contents.fp32_contents.extend((pixels / 255).flatten().tolist())
    else:
        tensor.contents.uint_contents.extend(int(value) for value in pixels.flatten())
    reply = client._client_stub.ModelInfer(request)
    found = np.frombuffer(reply.raw_output_contents[0], "<f4").reshape(tuple(reply.outputs[0].shape))
    assert np.array_equal(found, tent(classifier()).predict(pixels / 255).numpy())


#: The status, part of the reason, and what is wrong with the request.
BAD: dict[str, tuple[str, str, Callable[[], dict[str, Any]]]] = {
    "another model": ("NOT_FOUND", "'other' is not a known model", lambda: {"model_name": "other"}),
    "another version": ("NOT_FOUND", "tiny/versions/2", lambda: {"model_version": "2"}),
    "another datatype": ("INVALID_ARGUMENT", "UINT8", lambda: {"inputs": sent(images(2).double(), "FP64")}),
    "three sizes": ("INVALID_ARGUMENT", "four whole numbers", lambda: {"inputs": sent(images(2)[0])}),
    "NaN": ("INVALID_ARGUMENT", "NaN", lambda: {"inputs": sent(torch.full((2, 3, 16, 16), torch.nan))}),
    "out of range": ("INVALID_ARGUMENT", "[0, 1]", lambda: {"inputs": sent(images(2) * 255)}),
    "too many images": ("INVALID_ARGUMENT", "8 images", lambda: {"inputs": sent(images(9))}),
    "two inputs": ("INVALID_ARGUMENT", "one input", lambda: {"inputs": sent(images(2)) * 2}),
    "an odd shape": ("INVALID_ARGUMENT", "5 channels", lambda: {"inputs": sent(torch.rand(2, 5, 4, 4))}),
    "learn as text": ("INVALID_ARGUMENT", "'learn'", lambda: {"parameters": {"learn": "no"}}),
    "another output": (
        "INVALID_ARGUMENT",
        "'probabilities'",
        lambda: {"outputs": [triton.InferRequestedOutput("probabilities")]},
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_refused_with_its_reason(client: Any, case: str) -> None:
    code, text, bad = BAD[case]
    good = {"model_name": "tiny", "inputs": sent(images(2)), "sequence_id": "bad"}
    with pytest.raises(triton.InferenceServerException) as refused:
        client.infer(**(good | bad()))
    assert refused.value.status() == f"StatusCode.{code}"
    assert text in refused.value.message()


@pytest.mark.parametrize("entries", [0, 2])
def test_raw_contents_belong_to_the_one_input(client: Any, entries: int) -> None:
    request = service_pb2.ModelInferRequest(
        model_name="tiny", raw_input_contents=[bytes(2 * 3 * 16 * 16 * 4)] * entries
    )
    request.inputs.add(name="images", datatype="FP32", shape=(2, 3, 16, 16))
    with pytest.raises(grpc.RpcError) as refused:
        client._client_stub.ModelInfer(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"got {entries} and no contents" in refused.value.details()


SIZES = st.integers(-1, 4) | st.integers(2**20, 2**63 - 1)
TEXTS = st.text(max_size=8)
PARAMETERS = st.dictionaries(
    st.sampled_from(["sequence_id", "learn", "layout", "classification"]) | TEXTS,
    st.one_of(
        st.fixed_dictionaries({"string_param": TEXTS}),
        st.fixed_dictionaries({"bool_param": st.booleans()}),
        st.fixed_dictionaries({"int64_param": st.integers(-(2**63), 2**63 - 1)}),
    ),
    max_size=3,
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_message_does_more_than_raise_an_input_error(data: st.DataObject) -> None:
    message = MESSAGES["ModelInferRequest"](id=data.draw(TEXTS))
    for _ in range(data.draw(st.integers(0, 2))):
        tensor = message.inputs.add(
            name=data.draw(st.just("images") | TEXTS),
            datatype=data.draw(st.sampled_from(["FP32", "UINT8", "INT8"]) | TEXTS),
            shape=data.draw(st.lists(SIZES, min_size=3, max_size=5)),
        )
        if data.draw(st.booleans()):
            tensor.contents.fp32_contents.extend(data.draw(st.lists(st.floats(width=32), max_size=16)))
        for name, value in data.draw(PARAMETERS).items():
            setattr(tensor.parameters[name], *value.popitem())
    for name, value in data.draw(PARAMETERS).items():
        setattr(message.parameters[name], *value.popitem())
    message.raw_input_contents.extend(data.draw(st.lists(st.binary(max_size=70), max_size=2)))
    try:
        request = parse_inference(message, SMALL)
    except InputError as error:
        assert str(error)
    else:
        assert request.images.dim() == 4 and 0 not in request.images.shape and request.images.isfinite().all()


def test_bytes_that_are_no_message_are_refused(client: Any) -> None:
    call = client._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\xff\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a ModelInferRequest" in refused.value.details()


def test_a_message_beyond_the_limits_is_not_read(client: Any) -> None:
    with pytest.raises(triton.InferenceServerException) as refused:
        client.infer("tiny", sent(torch.rand(64, 3, 16, 16)), sequence_id="large")
    assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_a_call_without_a_token_is_refused_before_its_message_is_read() -> None:
    front_tokens = Tokens({"t" * 16: Right.TEACH})
    never = threading.Event()
    with serving() as service:
        server = GrpcServer(Front(service, classifier(), front_tokens), "127.0.0.1:0")
        with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelInfer")
            try:
                with pytest.raises(grpc.RpcError) as refused:
                    # A client that begins a message and never sends it.
                    next(call((b"" for _ in iter(never.wait, True)), timeout=WAIT))
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            finally:
                never.set()
        server.stop()


def test_tokens_are_asked_for_and_their_rights_kept() -> None:
    tokens = Tokens({"a" * 16: Right.ASK, "t" * 16: Right.TEACH})
    with serving() as service, client_of(service, tokens) as client:
        assert client.is_server_live() and client.is_server_ready() and client.get_server_metadata().name == "ctta"
        for headers in ({}, {"authorization": "Bearer unknown-unknown"}):
            for call in (
                lambda headers=headers: client.infer("tiny", sent(images(8)), headers=headers),
                lambda headers=headers: client.get_model_metadata("tiny", headers=headers),
                lambda headers=headers: client.is_model_ready("tiny", headers=headers),
            ):
                with pytest.raises(triton.InferenceServerException) as refused:
                    call()
                assert refused.value.status() == "StatusCode.UNAUTHENTICATED"
        with pytest.raises(triton.InferenceServerException, match="There is no stream 'default' yet") as refused:
            client.infer("tiny", sent(images(8)), headers={"authorization": f"Bearer {'a' * 16}"})
        assert refused.value.status() == "StatusCode.PERMISSION_DENIED"
        assert service.streams() == []
        for token, learnt in (("t" * 16, True), ("a" * 16, False)):
            result = client.infer("tiny", sent(images(8)), headers={"authorization": f"Bearer {token}"})
            assert parameters_of(result)["learnt"] is learnt


def test_a_full_queue_says_when_to_try_again() -> None:
    limits = Limits(wait=0.0, queue=8, learn_share=1.0)
    with held_learning() as make, serving(make=make, limits=limits) as service, client_of(service) as client:
        client.infer("tiny", sent(images(8)))
        assert Held.learning.wait(WAIT)
        done = threading.Event()
        client.async_infer("tiny", sent(images(8)), callback=lambda result, error: done.set())
        while service.stream("default").queue < 8:
            pass
        request = triton._utils._get_inference_request(
            "tiny", sent(images(8)), "", "", None, 0, False, False, 0, None, None
        )
        with pytest.raises(grpc.RpcError) as refused:
            client._client_stub.ModelInfer(request)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert int(dict(refused.value.trailing_metadata())["grpc-retry-pushback-ms"]) >= 1000
        Held.gate.set()
        assert done.wait(WAIT)


def test_requests_of_both_front_ends_share_their_memory() -> None:
    with serving() as service:
        front = Front(service, classifier())
        with client_of(front) as client:
            with front.bodies.held(4 * max(front.most_bytes, front.most_state_bytes)):
                with pytest.raises(triton.InferenceServerException, match="Other requests hold") as refused:
                    client.infer("tiny", sent(images(8)))
                assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
                assert client.is_model_ready("tiny")
            client.infer("tiny", sent(images(8)))
            front.bodies.take(4 * max(front.most_bytes, front.most_state_bytes))  # the call has returned its share


def test_a_request_that_its_client_gives_up_is_not_answered() -> None:
    with held_learning() as make, serving(make=make) as service:
        front = Front(service, classifier())
        with client_of(front) as client:
            client.infer("tiny", sent(images(8)))
            assert Held.learning.wait(WAIT)
            failed: list[Any] = []
            done = threading.Event()

            def keep(result: Any, error: Any) -> None:
                failed.append(error)
                done.set()

            call = client.async_infer("tiny", sent(images(4)), callback=keep)
            while not service.stream("default").queue:
                pass
            call.cancel()
            assert done.wait(WAIT)
            assert "CANCELLED" in str(failed[0])
            while b'code="CANCELLED"' not in front.metrics.text():
                pass
            Held.gate.set()
            client.infer("tiny", sent(images(8)))
            assert service.stream("default").answered == 16


def test_more_streams_than_allowed_are_refused() -> None:
    with serving(limits=replace(LIMITS, streams=1)) as service, client_of(service) as client:
        client.infer("tiny", sent(images(8)), sequence_id="first")
        with pytest.raises(triton.InferenceServerException) as refused:
            client.infer("tiny", sent(images(8)), sequence_id="second")
        assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_a_closed_service_is_unavailable() -> None:
    with serving() as service, client_of(service) as client:
        service.close()
        assert client.is_server_live() and not client.is_server_ready() and not client.is_model_ready("tiny")
        with pytest.raises(triton.InferenceServerException) as refused:
            client.infer("tiny", sent(images(8)))
        assert refused.value.status() == "StatusCode.UNAVAILABLE"


def test_a_server_that_stops_answers_what_it_accepted() -> None:
    with held_learning() as make, serving(make=make) as service:
        server = GrpcServer(Front(service, classifier()), "127.0.0.1:0")
        with triton.InferenceServerClient(f"127.0.0.1:{server.start()}") as client:
            client.infer("tiny", sent(images(8)))
            assert Held.learning.wait(WAIT)
            answers: list[Any] = []
            done = threading.Event()

            def keep(result: Any, error: Any) -> None:
                answers.append((result, error))
                done.set()

            client.async_infer("tiny", sent(images(8)), callback=keep)
            while not service.stream("default").queue:
                pass
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            Held.gate.set()
            assert done.wait(WAIT)
            stopping.join(WAIT)
            assert not stopping.is_alive()
            ((result, error),) = answers
            assert error is None and logits_of(result).shape == (8, classifier().num_classes)


def test_a_server_that_stops_refuses_what_comes_and_is_not_ready() -> None:
    request = MESSAGES["ModelInferRequest"](model_name="tiny")

    async def stop_while_asked(handlers: _Handlers) -> None:
        stopping = asyncio.create_task(handlers.drain())
        await asyncio.sleep(0)
        assert not (await handlers._ready(None, None)).ready
        with pytest.raises(ServiceClosing):
            await handlers._infer(request, Right.TEACH)
        assert not stopping.done()
        await stopping

    with serving() as service:
        asyncio.run(stop_while_asked(_Handlers(Front(service, classifier()))))


def test_a_port_in_use_is_an_error() -> None:
    with serving() as service:
        first, second = (GrpcServer(Front(service, classifier()), "127.0.0.1:0") for _ in range(2))
        port = first.start()
        second._address = f"127.0.0.1:{port}"
        with pytest.raises(ParameterError, match=f"{port} cannot be listened on"):
            second.start()
        first.stop()
        second.stop()


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_those_of_the_protocol(name: str) -> None:
    theirs: Any = service_pb2
    for part in name.split("."):
        theirs = getattr(theirs, part)
    assert _fields(MESSAGES[name].DESCRIPTOR) == _fields(theirs.DESCRIPTOR)


def _fields(message: Any) -> dict[str, Any]:
    return {
        field.name: (
            field.number,
            field.type,
            field.message_type and (field.message_type.full_name, field.message_type.GetOptions().map_entry),
            field.containing_oneof and field.containing_oneof.name,
            isinstance(field.default_value, list),
        )
        for field in message.fields
    }
