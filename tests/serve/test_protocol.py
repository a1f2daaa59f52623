"""The Open Inference Protocol: valid requests are read, and malformed ones raise named errors only."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctta.errors import (
    ImageDtype,
    ImageRange,
    ImageShape,
    InputError,
    NonFiniteImages,
    NonFiniteLogits,
    RequestError,
    RequestTooLarge,
)
from ctta.serve.protocol import DEFAULT_STREAM, Inference, ModelInfo, WantedOutput, model_metadata, server_metadata
from ctta.serve.types import Limits, Reply
from ctta.serve.wire import MOST_JSON, most_bytes, pack_reply, parse_inference, parse_json, parse_labels

LIMITS = Limits(images=8, pixels=1000)
MODEL = ModelInfo("net", 3, ("cat", "dog", "a:b"), (3, -1, -1))
REPLY = Reply(torch.tensor([[0.5, -1.0, 2.0], [1.0, 1.0, 0.25]]), 7, "adapt", "00000003", True)


def body(datatype: str = "FP32", shape: Any = (1, 1, 2, 2), data: Any = (0.0, 0.25, 0.5, 1.0), **more: Any) -> bytes:
    inputs = [{"name": "images", "datatype": datatype, "shape": shape, "data": data}]
    return json.dumps({"inputs": inputs} | more).encode()


def binary(
    raw: bytes, datatype: str = "FP32", shape: Any = (1, 1, 2, 2), size: Any = None, **more: Any
) -> tuple[bytes, str]:
    parameters = {"binary_data_size": len(raw) if size is None else size} | more
    head = json.dumps(
        {"inputs": [{"name": "images", "datatype": datatype, "shape": shape, "parameters": parameters}]}
    ).encode()
    return head + raw, str(len(head))


def read(content: bytes, header: str | None = None) -> Inference:
    return parse_inference(content, header, LIMITS)


def unpack(content: bytes, header: int) -> tuple[dict[str, Any], bytes]:
    return json.loads(content[:header]), content[header:]


def test_json_images_come_flat_or_nested() -> None:
    flat = read(body())
    nested = read(body(data=[[[[0.0, 0.25], [0.5, 1.0]]]]))
    assert flat.images.tolist() == nested.images.tolist() == [[[[0.0, 0.25], [0.5, 1.0]]]]
    assert flat.images.dtype == torch.float32
    assert (flat.stream, flat.id, flat.learn, flat.outputs) == (DEFAULT_STREAM, None, True, (WantedOutput(),))


def test_bytes_are_little_endian_floats_behind_the_json() -> None:
    request = read(*binary(struct.pack("<4f", 0.0, 0.25, 0.5, 1.0)))
    assert request.images.tolist() == [[[[0.0, 0.25], [0.5, 1.0]]]]


@pytest.mark.parametrize("as_json", [True, False])
def test_uint8_is_divided_by_255(as_json: bool) -> None:
    values = [0, 51, 102, 255]
    request = read(body("UINT8", data=values)) if as_json else read(*binary(bytes(values), "UINT8"))
    assert request.images.flatten().tolist() == [torch.tensor(v / 255).item() for v in values]


def test_a_declared_layout_of_channels_last_is_moved() -> None:
    values = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]  # one row of two pixels with three channels
    request = read(*binary(struct.pack("<6f", *values), shape=(1, 1, 2, 3), layout="NHWC"))
    expected = [[[[values[3 * column + channel] for column in range(2)]] for channel in range(3)]]
    torch.testing.assert_close(request.images, torch.tensor(expected))


@pytest.mark.parametrize(
    ("given", "stream"),
    [("cam", "cam"), (17, "17"), (-1, "-1"), (0, DEFAULT_STREAM), ("", DEFAULT_STREAM), ("a/b", "a/b"), ("été", "été")],
)
def test_the_sequence_id_names_the_stream(given: object, stream: str) -> None:
    assert read(body(parameters={"sequence_id": given})).stream == stream


def test_id_and_learn_are_read() -> None:
    request = read(body(id="r-1", parameters={"learn": False}))
    assert (request.id, request.learn) == ("r-1", False)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", RequestError),
        (b"[]", RequestError),
        (b"{", RequestError),
        (b"\xff{}", RequestError),
        (b"{}", RequestError),
        (b"[" * 100_000, RequestError),
        (b'{"inputs":' + b"[" * 100_000, RequestError),
        (b'{"inputs": [{"name": "images", "datatype": "FP32", "shape": [1,1,1,1], "data": [NaN]}]}', RequestError),
        (body(data=[1e999, 0, 0, 0]).replace(b"Infinity", b"1e999"), NonFiniteImages),
        (body(data=[0, 0, 0, 10**400]), InputError),
        (
            b'{"inputs": [{"name": "images", "datatype": "UINT8", "shape": [1,1,1,1], "data": [1%s]}]}' % (b"0" * 5000),
            RequestError,
        ),
        (body(data=[0.0, 0.5, 1.5, 0.0]), ImageRange),
        (body(data=[0.0] * 3), RequestError),
        (body(data=[[0.0, 0.0], [0.0, 0.0]]), RequestError),
        (body(data=[[0.0], [0.0, 0.0]]), RequestError),
        (body(data=["0", "0", "0", "0"]), RequestError),
        (body(data=[None] * 4), RequestError),
        (body(data=[True] * 4), RequestError),
        (body(data={}), RequestError),
        (body(data=7), RequestError),
        (body("UINT8", data=[0, 1, 2, 256]), ImageDtype),
        (body("UINT8", data=[0, 1, 2, -1]), ImageDtype),
        (body("UINT8", data=[0, 1, 2, 0.5]), ImageDtype),
        (body("FP64"), ImageDtype),
        (body("BYTES"), ImageDtype),
        (body(None), ImageDtype),  # type: ignore[arg-type]
        (body(shape=[0, 1, 2, 2], data=[]), ImageShape),
        (body(shape=[1, 2, 2]), ImageShape),
        (body(shape=[1, 1, 2, -2]), ImageShape),
        (body(shape=[1, 1, 2, 2.0]), ImageShape),
        (body(shape=[True, 1, 2, 2]), ImageShape),
        (body(shape="1122"), ImageShape),
        (body(shape=[10**400, 1, 1, 1]), ImageShape),
        (body(shape=[9, 1, 1, 1], data=[0.0] * 9), RequestTooLarge),
        (body(shape=[1, 1, 2**30, 2**30]), RequestTooLarge),
        (body(inputs=[]), RequestError),
        (body(inputs=[{}]), RequestError),
        (body(inputs=[1]), RequestError),
        (body(inputs=[{"name": "x"}]), RequestError),
        (body(parameters=3), RequestError),
        (body(parameters={"learn": "no"}), RequestError),
        (body(parameters={"sequence_id": 1.5}), RequestError),
        (body(parameters={"sequence_id": True}), RequestError),
        (body(parameters={"sequence_id": "x" * 129}), RequestError),
        (body(parameters={"sequence_id": "a\nb"}), RequestError),
        (body(parameters={"sequence_id": "\ud800"}), RequestError),
        (body(parameters={"binary_data_output": 1}), RequestError),
        (body(id=5), RequestError),
        (body(id="x" * 257), RequestError),
        (body(id="\udfff"), RequestError),
        (body(outputs={}), RequestError),
        (body(outputs=[{"name": "probabilities"}]), RequestError),
        (body(outputs=[{"name": "logits"}, {"name": "logits"}]), RequestError),
        (body(outputs=[{"name": "logits", "parameters": {"classification": -1}}]), RequestError),
        (body(outputs=[{"name": "logits", "parameters": {"classification": True}}]), RequestError),
        (body(outputs=[{"name": "logits", "parameters": {"binary_data": "yes"}}]), RequestError),
    ],
)
def test_what_is_malformed_is_a_named_error(content: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"\w{3}"):
        read(content)


FOUR = struct.pack("<4f", 0.0, 0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (binary(FOUR[:-1]), RequestError),
        (binary(FOUR + b"\0"), RequestError),
        (binary(FOUR, size=15), RequestError),
        (binary(FOUR, size=-16), RequestError),
        (binary(FOUR, size="16"), RequestError),
        (binary(FOUR, size=True), RequestError),
        (binary(FOUR, "UINT8"), RequestError),
        (binary(FOUR, shape=(1, 1, 4, 4)), RequestError),
        (binary(FOUR, layout="CHWN"), RequestError),
        (binary(struct.pack("<4f", 0, math.nan, 0, 0)), NonFiniteImages),
        (binary(struct.pack("<4f", 0, math.inf, 0, 0)), NonFiniteImages),
        (binary(struct.pack("<4f", 0, 255, 0, 0)), ImageRange),
        ((body() + FOUR, str(len(body()))), RequestError),
        ((binary(FOUR)[0], "-5"), RequestError),
        ((binary(FOUR)[0], "1e3"), RequestError),
        ((binary(FOUR)[0], "²"), RequestError),
        ((binary(FOUR)[0], "9" * 30), RequestError),
        ((binary(FOUR)[0], "100000"), RequestError),
        ((binary(FOUR)[0], "0"), RequestError),
        ((binary(FOUR)[0], None), RequestError),
    ],
)
def test_bytes_that_do_not_fit_are_a_named_error(content: tuple[bytes, str | None], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"\w{3}"):
        read(*content)


def test_data_beside_bytes_is_refused() -> None:
    content, header = binary(FOUR)
    head = json.loads(content[: int(header)])
    head["inputs"][0]["data"] = [0.0] * 4
    text = json.dumps(head).encode()
    with pytest.raises(RequestError, match="both"):
        read(text + FOUR, str(len(text)))


def test_too_much_json_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(RequestTooLarge, match="binary tensor extension"):
        parse_json(b"{" + b" " * MOST_JSON)


def test_a_body_of_the_most_pixels_fits() -> None:
    assert most_bytes(Limits(pixels=1 << 24)) > 4 << 24


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("images") | values,
        "datatype": st.sampled_from(["FP32", "UINT8", "INT8"]) | values,
        "shape": st.lists(st.integers(-1, 4) | st.integers(2**20, 2**70), min_size=3, max_size=5) | values,
        "data": st.lists(st.integers(0, 1) | st.floats(), max_size=16) | values,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-1, 70) | values}) | values,
    },
)
requests = st.fixed_dictionaries(
    {"inputs": st.lists(inputs, max_size=2) | values},
    optional={
        "id": values,
        "parameters": st.fixed_dictionaries({}, optional={"sequence_id": values, "learn": values}) | values,
        "outputs": st.lists(st.fixed_dictionaries({"name": st.just("logits") | values}), max_size=2) | values,
    },
)


@settings(max_examples=200, deadline=None)
@given(requests, st.binary(max_size=70), st.none() | st.integers(-2, 400))
def test_no_request_does_more_than_raise_an_input_error(message: Any, tail: bytes, shift: int | None) -> None:
    head = json.dumps(message).encode()
    header = None if shift is None else str(len(head) if shift < 0 else shift)
    try:
        request = read(head + tail, header)
    except InputError as error:
        assert str(error)
    else:
        assert request.images.dim() == 4 and 0 not in request.images.shape
        assert request.images.min() >= -1e-3 and request.images.max() <= 1 + 1e-3
        assert len(request.images) <= LIMITS.images


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_truncated_body_is_a_request_error(data: st.DataObject) -> None:
    content, header = binary(FOUR)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(RequestError):
        read(content[:cut], header)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=12, max_size=12))
def test_bytes_and_json_give_the_same_images(numbers: list[float]) -> None:
    shape = (2, 3, 2, 1)
    from_bytes = read(*binary(struct.pack("<12f", *numbers), shape=shape))
    from_json = read(body(shape=shape, data=numbers))
    assert torch.equal(from_bytes.images, from_json.images)
    assert from_bytes.images.flatten().tolist() == numbers


def inference(*outputs: WantedOutput, **more: Any) -> Inference:
    return Inference(torch.zeros(2, 1, 1, 1), outputs=outputs or (WantedOutput(),), **more)


def test_a_reply_carries_logits_and_what_the_stream_had_learnt() -> None:
    packed = pack_reply(inference(id="r", stream="cam"), REPLY, MODEL)
    assert packed.json_bytes is None
    assert json.loads(packed.content) == {
        "model_name": "net",
        "model_version": "1",
        "id": "r",
        "parameters": {"sequence_id": "cam", "steps": 7, "mode": "adapt", "learnt": True, "snapshot": "00000003"},
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [2, 3], "data": [0.5, -1.0, 2.0, 1.0, 1.0, 0.25]}],
    }


def test_logits_as_bytes_follow_the_json() -> None:
    packed = pack_reply(inference(WantedOutput(binary=True)), REPLY, MODEL)
    assert packed.json_bytes is not None
    head, tail = unpack(packed.content, packed.json_bytes)
    assert struct.unpack("<6f", tail) == (0.5, -1.0, 2.0, 1.0, 1.0, 0.25)
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 24}
    assert "data" not in head["outputs"][0]


def test_classification_gives_score_index_and_label_and_equal_scores_in_order() -> None:
    wanted = WantedOutput(classes=2)
    (output,) = json.loads(pack_reply(inference(wanted), REPLY, MODEL).content)["outputs"]
    assert output["datatype"] == "BYTES"
    assert output["shape"] == [2, 2]
    assert output["data"] == ["2.000000:2:a:b", "0.500000:0:cat", "1.000000:0:cat", "1.000000:1:dog"]


def test_classification_without_names_and_as_bytes() -> None:
    wanted = WantedOutput(classes=99, binary=True)
    packed = pack_reply(inference(wanted), REPLY, ModelInfo("net", 3))
    assert packed.json_bytes is not None
    head, tail = unpack(packed.content, packed.json_bytes)
    texts = []
    while tail:
        (length,) = struct.unpack("<I", tail[:4])
        texts.append(tail[4 : 4 + length].decode())
        tail = tail[4 + length :]
    assert head["outputs"][0]["shape"] == [2, 3]
    assert texts[:3] == ["2.000000:2", "0.500000:0", "-1.000000:1"]


def test_logits_that_json_cannot_hold_are_a_named_error_and_bytes_can() -> None:
    broken = Reply(torch.tensor([[math.nan, 1.0]]), 0, "adapt", None, False)
    with pytest.raises(NonFiniteLogits):
        pack_reply(inference(), broken, ModelInfo("net", 2))
    packed = pack_reply(inference(WantedOutput(binary=True)), broken, ModelInfo("net", 2))
    assert math.isnan(struct.unpack("<2f", packed.content[-8:])[0])


def test_metadata_names_the_tensors() -> None:
    found = model_metadata(MODEL)
    (images,), (logits,) = found["inputs"], found["outputs"]
    assert (images["name"], images["datatype"], images["shape"]) == ("images", "FP32", [-1, 3, -1, -1])
    assert "UINT8" in images["parameters"]["range"]
    assert (logits["name"], logits["datatype"], logits["shape"]) == ("logits", "FP32", [-1, 3])
    assert set(server_metadata()["extensions"]) == {"binary_tensor_data", "classification", "sequence"}


def test_labels_are_lists_by_request_id() -> None:
    assert parse_labels(b'{"labels": {"a": [1, 2]}}') == {"a": [1, 2]}
    for wrong in (b"{}", b'{"labels": []}', b'{"labels": {"a": 1}}', b"", b"nonsense"):
        with pytest.raises(RequestError):
            parse_labels(wrong)
