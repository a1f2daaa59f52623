"""The machine-readable description of the HTTP front end: OpenAPI 3.1."""

from __future__ import annotations

from ctta.serve.images import INPUT
from ctta.serve.protocol import VERSION, ModelInfo
from ctta.serve.schemas import COUNT, FLAG, TEXT, Json, object_of, ref, schemas
from ctta.serve.types import MODES
from ctta.serve.wire import HEADER_LENGTH
from ctta.version import __version__

_ERRORS = {
    "400": "The request cannot be used; the message says what is needed.",
    "401": "The request needs a token.",
    "403": "The token does not allow this.",
    "404": "No such model, stream or snapshot.",
    "408": "The body came too slowly.",
    "409": "The state of the stream does not allow this, or there is no good snapshot to return to.",
    "413": "The body, or the number of images or pixels, is too large.",
    "415": "Compressed bodies are not read.",
    "429": "The service has as many streams as it may.",
    "500": "The files of the stream are damaged, or the logits are not finite; the message says which.",
    "503": "Too much waits, or the service is closing; Retry-After says when to try again.",
    "507": "The operation is in effect, but could not be written to disk.",
}


def _named(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


_STREAM = [_named("stream")]


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
            "schemas": schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _protocol_paths(model: ModelInfo) -> Json:
    named = [{"name": "model", "in": "path", "required": True, "schema": {"enum": [model.name]}}]
    version = {"name": "version", "in": "path", "required": True, "schema": {"enum": [VERSION]}}
    ready = object_of({"ready": FLAG}, "ready")
    infer = _operation(
        "Answer images; the service may learn from them afterwards",
        _reply(ref("InferReply"), binary=True),
        ("400", "401", "403", "404", "408", "413", "415", "429", "500", "503"),
        body=ref("InferRequest"),
        required=True,
    )
    infer["requestBody"]["content"]["application/octet-stream"] = {"schema": _BYTES}
    infer["requestBody"]["content"]["application/json"]["example"] = _example(model)
    infer["parameters"] = [
        {
            "name": HEADER_LENGTH,
            "in": "header",
            "description": "How many bytes of the body are JSON; tensors follow as bytes.",
            "schema": COUNT,
        }
    ]
    return {
        "/": {"get": _operation("The live page", {"text/html": {"schema": TEXT}})},
        "/openapi.json": {"get": _operation("This description", _reply({"type": "object"}))},
        "/v2": {"get": _operation("Metadata of the server", _reply(ref("Server")))},
        "/v2/health/live": {"get": _operation("Whether the server runs", _reply(object_of({"live": FLAG}, "live")))},
        "/v2/health/ready": {"get": _operation("Whether requests are accepted", _reply(ready), ("503",))},
        **{
            f"/v2/models/{{model}}{path}{tail}": {"parameters": parameters, **operation}
            for path, parameters in (("", named), ("/versions/{version}", [*named, version]))
            for tail, operation in (
                ("", {"get": _operation("Metadata of the model", _reply(ref("Model")), _READ)}),
                ("/ready", {"get": _operation("Whether the model is ready", _reply(ready), (*_READ, "503"))}),
                ("/infer", {"post": infer}),
            )
        },
        "/metrics": {
            "get": _operation("Metrics for Prometheus", {"text/plain": {"schema": TEXT}}, ("401", "403")),
        },
    }


def _stream_paths() -> Json:
    status, snapshot = _reply(ref("Stream")), _reply(ref("Snapshot"))
    listed = {"model": {"type": "string"}, "streams": {"type": "array", "items": ref("Stream")}}
    streams = object_of(listed, "model", "streams")
    read = ("400", "401", "403", "404", "408", "413", "503")
    change = (*read, "507")

    def at(tail: str, **methods: Json) -> Json:
        return {f"/ctta/streams/{{stream}}{tail}": {"parameters": _STREAM, **methods}}

    put_state = _operation(
        "Replace the adapter; in shadow mode, the challenger", status, (*change, "429"), required=True
    )
    put_state["requestBody"]["content"] = {"application/octet-stream": {"schema": _BYTES}}
    return {
        "/ctta/streams": {"get": _operation("Status of every stream", _reply(streams), ("401", "403"))},
        **at(
            "",
            get=_operation("Status of a stream", status, _READ),
            delete=_operation("Remove a stream and its files", status, (*_READ, "409", "503")),
        ),
        **at(
            "/log",
            get=_operation("Events as they come", {"text/event-stream": {"schema": TEXT}}, (*_READ, "503")),
        ),
        **at(
            "/mode",
            put=_operation(
                "Change the mode",
                status,
                change,
                body=object_of({"mode": {"enum": list(MODES)}}, "mode"),
                required=True,
            ),
        ),
        **at("/reset", post=_operation("Return to the source", status, change, body=object_of({}))),
        **at(
            "/restart",
            post=_operation(
                "Restart a stream that has stopped, from its newest snapshot",
                status,
                (*read, "409"),
                body=object_of({}),
            ),
        ),
        **at(
            "/snapshot",
            post=_operation("Take a snapshot", snapshot, change, body=object_of({"pin": FLAG})),
        ),
        **at(
            "/rollback",
            post=_operation(
                "Return to a snapshot; without a name, to the newest good one with fewer steps",
                snapshot,
                (*change, "409"),
                body=object_of({"snapshot": TEXT}),
            ),
        ),
        "/ctta/streams/{stream}/snapshots/{snapshot}": {
            "parameters": [*_STREAM, _named("snapshot")],
            "put": _operation(
                "Pin or unpin a snapshot", snapshot, read, body=object_of({"pin": FLAG}, "pin"), required=True
            ),
        },
        **at(
            "/promote",
            post=_operation("Swap champion and challenger", status, (*change, "409"), body=object_of({})),
        ),
        **at(
            "/labels",
            post=_operation(
                "Score earlier answers by request id",
                _reply(ref("Labelled")),
                read,
                body=object_of(
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
            get=_operation(
                "The adapter that predicts, as a checkpoint file", {_OCTETS: {"schema": _BYTES}}, (*_READ, "503")
            ),
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
    failed = {code: {"description": _ERRORS[code], "content": _reply(ref("Error"))} for code in errors}
    found: Json = {"summary": summary, "responses": {"200": {"description": summary, "content": content}, **failed}}
    if body is not None or required:
        found["requestBody"] = {"required": required, "content": {} if body is None else _reply(body)}
    return found


def _reply(schema: Json, *, binary: bool = False) -> Json:
    return {"application/json": {"schema": schema}} | ({_OCTETS: {"schema": _BYTES}} if binary else {})
