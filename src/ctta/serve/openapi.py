"""The machine-readable description of the HTTP front end: OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from ctta.serve.images import INPUT
from ctta.serve.protocol import OUTPUT, VERSION, ModelInfo
from ctta.serve.types import MODES
from ctta.serve.wire import HEADER_LENGTH
from ctta.version import __version__

Json = dict[str, Any]

_ERRORS = {
    "400": "The request cannot be used; the message says what is needed.",
    "401": "The request needs a token.",
    "403": "The token does not allow this.",
    "404": "No such model, stream or snapshot.",
    "408": "The body came too slowly.",
    "409": "The stream's mode does not allow this.",
    "413": "The body, or the number of images or pixels, is too large.",
    "415": "Compressed bodies are not read.",
    "429": "The service has as many streams as it may.",
    "503": "Too much waits, or the service is closing; Retry-After says when to try again.",
}
_STREAM = [{"name": "stream", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]
_NUMBER: Json = {"type": ["number", "null"]}
_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_FLAG: Json = {"type": "boolean"}


def openapi(model: ModelInfo) -> Json:
    """Return the description.

    Args:
        model: The model.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ctta",
            "version": __version__,
            "description": "A classifier that goes on learning after deployment: the Open Inference Protocol V2, and "
            "operations on its streams.",
        },
        "security": [{}, {"token": []}],
        "paths": _protocol_paths(model) | _stream_paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _protocol_paths(model: ModelInfo) -> Json:
    named = [{"name": "model", "in": "path", "required": True, "schema": {"enum": [model.name]}}]
    version = {"name": "version", "in": "path", "required": True, "schema": {"enum": [VERSION]}}
    ready = _object({"ready": _FLAG}, "ready")
    infer = _operation(
        "Answer images; the service may learn from them afterwards",
        _reply(_ref("InferReply"), binary=True),
        ("400", "401", "403", "404", "408", "413", "415", "429", "503"),
        body=_ref("InferRequest"),
        required=True,
    )
    infer["requestBody"]["content"]["application/octet-stream"] = {"schema": _BYTES}
    infer["requestBody"]["content"]["application/json"]["example"] = _example(model)
    infer["parameters"] = [
        {
            "name": HEADER_LENGTH,
            "in": "header",
            "description": "How many bytes of the body are JSON; tensors follow as bytes.",
            "schema": _COUNT,
        }
    ]
    return {
        "/": {"get": _operation("The live page", {"text/html": {"schema": _TEXT}})},
        "/openapi.json": {"get": _operation("This description", _reply({"type": "object"}))},
        "/v2": {"get": _operation("Metadata of the server", _reply(_ref("Server")))},
        "/v2/health/live": {"get": _operation("Whether the server runs", _reply(_object({"live": _FLAG}, "live")))},
        "/v2/health/ready": {"get": _operation("Whether requests are accepted", _reply(ready), ("503",))},
        **{
            f"/v2/models/{{model}}{path}{tail}": {"parameters": parameters, **operation}
            for path, parameters in (("", named), ("/versions/{version}", [*named, version]))
            for tail, operation in (
                ("", {"get": _operation("Metadata of the model", _reply(_ref("Model")), _READ)}),
                ("/ready", {"get": _operation("Whether the model is ready", _reply(ready), (*_READ, "503"))}),
                ("/infer", {"post": infer}),
            )
        },
        "/metrics": {
            "get": _operation("Metrics for Prometheus", {"text/plain": {"schema": _TEXT}}, ("401", "403")),
        },
    }


def _stream_paths() -> Json:
    status, snapshot = _reply(_ref("Stream")), _reply(_ref("Snapshot"))
    listed = {"model": {"type": "string"}, "streams": {"type": "array", "items": _ref("Stream")}}
    streams = _object(listed, "model", "streams")
    change = ("400", "401", "403", "404", "408", "413", "503")

    def at(tail: str, **methods: Json) -> Json:
        return {f"/ctta/streams/{{stream}}{tail}": {"parameters": _STREAM, **methods}}

    put_state = _operation("Replace the adapter", status, (*change, "429"), required=True)
    put_state["requestBody"]["content"] = {"application/octet-stream": {"schema": _BYTES}}
    return {
        "/ctta/streams": {"get": _operation("Status of every stream", _reply(streams), ("401", "403"))},
        **at("", get=_operation("Status of a stream", status, _READ)),
        **at(
            "/log",
            get=_operation("Events as they come", {"text/event-stream": {"schema": _TEXT}}, (*_READ, "503")),
        ),
        **at(
            "/mode",
            put=_operation(
                "Change the mode",
                status,
                change,
                body=_object({"mode": {"enum": list(MODES)}}, "mode"),
                required=True,
            ),
        ),
        **at("/reset", post=_operation("Return to the source", status, change, body=_object({}))),
        **at(
            "/snapshot",
            post=_operation("Take a snapshot", snapshot, change, body=_object({"pin": _FLAG})),
        ),
        **at(
            "/rollback",
            post=_operation("Return to a snapshot", snapshot, change, body=_object({"snapshot": _TEXT})),
        ),
        **at(
            "/promote",
            post=_operation("Swap champion and challenger", status, (*change, "409"), body=_object({})),
        ),
        **at(
            "/labels",
            post=_operation(
                "Score earlier answers by request id",
                _reply(_ref("Labelled")),
                change,
                body=_object(
                    {
                        "labels": {
                            "type": "object",
                            "additionalProperties": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                        }
                    },
                    "labels",
                ),
                required=True,
            ),
        ),
        **at(
            "/state",
            get=_operation("The adapter as a checkpoint file", {_OCTETS: {"schema": _BYTES}}, (*_READ, "503")),
            put=put_state,
        ),
    }


_READ = ("401", "403", "404")
_OCTETS = "application/octet-stream"
_BYTES: Json = {"type": "string", "contentMediaType": _OCTETS}


def _example(model: ModelInfo) -> Json:
    """Return a request with one grey image."""
    channels, height, width = (
        known if known > 0 else usual for known, usual in zip(model.image_shape, (3, 8, 8), strict=True)
    )
    images = {
        "name": INPUT,
        "datatype": "UINT8",
        "shape": [1, channels, height, width],
        "data": [128] * (channels * height * width),
    }
    return {"id": "example", "parameters": {"sequence_id": "camera 1", "learn": False}, "inputs": [images]}


def _operation(
    summary: str, content: Json, errors: tuple[str, ...] = (), *, body: Json | None = None, required: bool = False
) -> Json:
    failed = {code: {"description": _ERRORS[code], "content": _reply(_ref("Error"))} for code in errors}
    found: Json = {"summary": summary, "responses": {"200": {"description": summary, "content": content}, **failed}}
    if body is not None or required:
        found["requestBody"] = {"required": required, "content": {} if body is None else _reply(body)}
    return found


def _reply(schema: Json, *, binary: bool = False) -> Json:
    return {"application/json": {"schema": schema}} | ({_OCTETS: {"schema": _BYTES}} if binary else {})


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _schemas() -> Json:
    shape = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 64}, "minItems": 4, "maxItems": 4}
    parameters: Json = {"type": "object"}
    tensor = _object({"name": _TEXT, "datatype": _TEXT, "shape": {"type": "array"}}, "name", "datatype", "shape")
    return {
        "Error": _object({"error": _TEXT, "type": _TEXT}, "error"),
        "Server": _object({"name": _TEXT, "version": _TEXT, "extensions": {"type": "array"}}, "name", "version"),
        "Model": _object(
            {
                "name": _TEXT,
                "versions": {"type": "array", "items": _TEXT},
                "platform": _TEXT,
                "inputs": {"type": "array", "items": tensor},
                "outputs": {"type": "array", "items": tensor},
            },
            "name",
            "platform",
            "inputs",
            "outputs",
        ),
        "InferRequest": _object(
            {
                "id": {"type": "string", "maxLength": 256},
                "parameters": _object({"sequence_id": {"type": ["string", "integer"]}, "learn": _FLAG}),
                "inputs": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1,
                    "items": _object(
                        {
                            "name": {"const": INPUT},
                            "datatype": {"enum": ["FP32", "UINT8"]},
                            "shape": shape,
                            "parameters": parameters,
                            "data": {"type": "array"},
                        },
                        "name",
                        "datatype",
                        "shape",
                    ),
                },
                "outputs": {
                    "type": "array",
                    "maxItems": 1,
                    "items": _object(
                        {
                            "name": {"const": OUTPUT},
                            "parameters": _object({"classification": _COUNT, "binary_data": _FLAG}),
                        },
                        "name",
                    ),
                },
            },
            "inputs",
        ),
        "InferReply": _object(
            {
                "model_name": _TEXT,
                "model_version": _TEXT,
                "id": _TEXT,
                "parameters": _object(
                    {
                        "sequence_id": _TEXT,
                        "steps": _COUNT,
                        "mode": {"enum": list(MODES)},
                        "learnt": _FLAG,
                        "snapshot": _TEXT,
                    },
                    "steps",
                    "mode",
                    "learnt",
                ),
                "outputs": {"type": "array", "items": tensor},
            },
            "model_name",
            "outputs",
        ),
        "Stream": _object(
            {
                "name": _TEXT,
                "mode": {"enum": list(MODES)},
                "guard": {"enum": ["ok", "cooldown", "probation", "off"]},
                "last_snapshot": {"type": ["string", "null"]},
                "snapshots": {"type": "array", "items": _ref("Snapshot")},
                **dict.fromkeys(_STREAM_COUNTS, _COUNT),
                **dict.fromkeys(_STREAM_NUMBERS, _NUMBER),
            },
            "name",
            "mode",
            "guard",
            "snapshots",
            *_STREAM_COUNTS,
        ),
        "Snapshot": _object(
            {
                "name": _TEXT,
                "steps": _COUNT,
                "time": {"type": "number"},
                "health": {"type": "object", "additionalProperties": _NUMBER},
                "pinned": _FLAG,
                "good": _FLAG,
            },
            "name",
            "steps",
            "time",
        ),
        "Labelled": _object(
            {"error": _NUMBER, "labelled": _COUNT, "unknown": {"type": "array", "items": _TEXT}}, "labelled"
        ),
    }


_STREAM_COUNTS = (
    "steps",
    "skipped",
    "queue",
    "resets",
    "labelled",
    "answered",
    "learnt",
    "shed",
    "failures",
    "unsaved",
)
_STREAM_NUMBERS = ("entropy", "alpha", "diversity", "agreement", "loss", "error", "latency_ms")
