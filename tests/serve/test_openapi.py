"""The OpenAPI file matches the server: schemathesis finds no 5xx, and only documented statuses and content types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest.importorskip("schemathesis")

import jsonschema_rs
import schemathesis
import torch
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ctta.serve.openapi import openapi
from ctta.serve.protocol import ModelInfo
from serve.engine import images
from serve.http_server import HOST, INFER, Running, request, running

pytestmark = pytest.mark.serve

description = openapi(ModelInfo("tiny", 10, None, (3, -1, -1)))
# A log has no end.
schema = schemathesis.openapi.from_dict(description).exclude(path_regex="/log$")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        found.call("POST", INFER, request(images(2), parameters={"sequence_id": "0"}))
        yield found


@schema.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_reply_is_documented(case: Any, server: Running) -> None:
    case.call_and_validate(
        base_url=f"http://{HOST}:{server.port}",
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ],
    )


def test_the_example_request_is_answered(server: Running) -> None:
    infer = description["paths"]["/v2/models/{model}/infer"]["post"]
    said = server.call("POST", INFER, infer["requestBody"]["content"]["application/json"]["example"])
    assert (said.status, said.json()["id"]) == (200, "example")


def test_images_of_any_size_are_described() -> None:
    infer = description["paths"]["/v2/models/{model}/infer"]["post"]["requestBody"]["content"]["application/json"]
    whole = infer["schema"] | {"components": description["components"]}
    jsonschema_rs.validate(whole, request(torch.zeros(1, 3, 224, 224)))


def test_every_route_is_described(server: Running) -> None:
    said = server.call("GET", "/openapi.json").json()
    assert said == description
    for path, methods in said["paths"].items():
        for method in methods.keys() - {"parameters"}:
            found = server.call(method.upper(), path.format(model="tiny", version="1", stream="none", snapshot="1"))
            assert found.status != 405, path
