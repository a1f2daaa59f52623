"""The unmodified tritonclient over HTTP: JSON and bytes, sequence ids, UINT8, classification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from serve.engine import classifier, images, tent
from serve.http_server import HOST, Running, running

triton = pytest.importorskip("tritonclient.http")
utils = pytest.importorskip("tritonclient.utils")

pytestmark = pytest.mark.serve


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(class_names=[f"class {i}" for i in range(10)]) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[Any]:
    found = triton.InferenceServerClient(f"{HOST}:{server.port}")
    yield found
    found.close()


def given(x: np.ndarray[Any, Any], binary: bool = True) -> list[Any]:
    tensor = triton.InferInput("images", list(x.shape), "UINT8" if x.dtype == np.uint8 else "FP32")
    tensor.set_data_from_numpy(x, binary_data=binary)
    return [tensor]


def test_it_asks_for_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.get_server_metadata()["name"] == "ctta"
    (version,) = client.get_model_metadata("tiny")["versions"]
    assert client.get_model_metadata("tiny", version)["outputs"][0]["name"] == "logits"
    assert client.is_model_ready("tiny", version)
    assert not client.is_model_ready("tiny", "2")


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_floats_as_bytes_and_as_json(client: Any, binary_in: bool, binary_out: bool) -> None:
    stream = f"floats-{binary_in}-{binary_out}"
    x = images(4)
    outputs = [triton.InferRequestedOutput("logits", binary_data=binary_out)]
    found = client.infer("tiny", given(x.numpy(), binary_in), outputs=outputs, request_id="one", sequence_id=stream)
    np.testing.assert_array_equal(found.as_numpy("logits"), tent(classifier()).step(x).logits.numpy())
    said = found.get_response()
    assert said["id"] == "one"
    assert said["parameters"] == {"sequence_id": stream, "steps": 0, "mode": "adapt", "learnt": True}


def test_every_sequence_id_is_a_stream_of_its_own(client: Any) -> None:
    alone = {name: tent(classifier()) for name in (7, "seven")}
    for i in range(3):
        for shift, name in enumerate(alone):
            x = images(4, 10 * i + shift)
            found = client.infer("tiny", given(x.numpy()), sequence_id=name, sequence_start=i == 0)
            np.testing.assert_array_equal(found.as_numpy("logits"), alone[name].step(x).logits.numpy())


def test_uint8_images(client: Any) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (4, 3, 16, 16), np.uint8)
    found = client.infer("tiny", given(levels), sequence_id="bytes")
    alone = tent(classifier()).step(images(4).new_tensor(levels) / 255)
    np.testing.assert_array_equal(found.as_numpy("logits"), alone.logits.numpy())


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client: Any, binary: bool) -> None:
    x = images(2)
    wanted = triton.InferRequestedOutput("logits", binary_data=binary, class_count=3)
    found = client.infer("tiny", given(x.numpy()), outputs=[wanted], sequence_id=f"classes-{binary}")
    logits = tent(classifier()).step(x).logits
    rows = found.as_numpy("logits")
    assert rows.shape == (2, 3)
    for row, own in zip(rows, logits.tolist(), strict=True):
        best = sorted(range(10), key=lambda k: -own[k])[:3]
        texts = [text.decode() if isinstance(text, bytes) else text for text in row]
        assert texts == [f"{own[k]:f}:{k}:class {k}" for k in best]


def test_a_probe_is_not_learnt(client: Any) -> None:
    found = client.infer("tiny", given(images(4).numpy()), sequence_id="probe", parameters={"learn": False})
    assert found.get_response()["parameters"]["learnt"] is False


def test_the_server_says_what_is_wrong(client: Any) -> None:
    with pytest.raises(utils.InferenceServerException, match=r"must be floats in \[0, 1\]"):
        client.infer("tiny", given(255 * images(1).numpy()))
