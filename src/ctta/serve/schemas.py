"""The JSON schemas of the OpenAPI description: what requests and replies look like."""

from __future__ import annotations

from typing import Any

from ctta.serve.images import INPUT
from ctta.serve.protocol import OUTPUT
from ctta.serve.types import LONGEST_ID, MODES

Json = dict[str, Any]

_NUMBER: Json = {"type": ["number", "null"]}
TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
FLAG: Json = {"type": "boolean"}


def ref(name: str) -> Json:
    """Return a reference to a schema.

    Args:
        name: A key of `schemas`.
    """
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(properties: Json, *required: str) -> Json:
    """Return the schema of an object.

    Args:
        properties: The schemas of its properties, by name.
        required: The names of those that it must have.
    """
    return {"type": "object", "properties": properties, "required": list(required)}


def schemas() -> Json:
    """Return every schema by name."""
    shape = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 4, "maxItems": 4}
    parameters: Json = {"type": "object"}
    tensor = object_of({"name": TEXT, "datatype": TEXT, "shape": {"type": "array"}}, "name", "datatype", "shape")
    return {
        "Error": object_of({"error": TEXT, "type": TEXT}, "error"),
        "Server": object_of({"name": TEXT, "version": TEXT, "extensions": {"type": "array"}}, "name", "version"),
        "Model": object_of(
            {
                "name": TEXT,
                "versions": {"type": "array", "items": TEXT},
                "platform": TEXT,
                "inputs": {"type": "array", "items": tensor},
                "outputs": {"type": "array", "items": tensor},
            },
            "name",
            "platform",
            "inputs",
            "outputs",
        ),
        "InferRequest": object_of(
            {
                "id": {"type": "string", "maxLength": LONGEST_ID},
                "parameters": object_of({"sequence_id": {"type": ["string", "integer"]}, "learn": FLAG}),
                "inputs": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1,
                    "items": object_of(
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
                    "items": object_of(
                        {
                            "name": {"const": OUTPUT},
                            "parameters": object_of({"classification": COUNT, "binary_data": FLAG}),
                        },
                        "name",
                    ),
                },
            },
            "inputs",
        ),
        "InferReply": object_of(
            {
                "model_name": TEXT,
                "model_version": TEXT,
                "id": TEXT,
                "parameters": object_of(
                    {
                        "sequence_id": TEXT,
                        "steps": COUNT,
                        "mode": {"enum": list(MODES)},
                        "learnt": FLAG,
                        "snapshot": TEXT,
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
        "Stream": object_of(
            {
                "name": TEXT,
                "mode": {"enum": list(MODES)},
                "guard": {"enum": ["ok", "cooldown", "probation", "off"]},
                "last_snapshot": {"type": ["string", "null"]},
                "stopped": {"type": ["string", "null"]},
                "snapshots": {"type": "array", "items": ref("Snapshot")},
                **dict.fromkeys(_STREAM_COUNTS, COUNT),
                **dict.fromkeys(_STREAM_NUMBERS, _NUMBER),
            },
            "name",
            "mode",
            "guard",
            "snapshots",
            *_STREAM_COUNTS,
        ),
        "Snapshot": object_of(
            {
                "name": TEXT,
                "steps": COUNT,
                "time": {"type": "number"},
                "health": {"type": "object", "additionalProperties": _NUMBER},
                "pinned": FLAG,
                "good": FLAG,
            },
            "name",
            "steps",
            "time",
        ),
        "Labelled": object_of(
            {"error": _NUMBER, "labelled": COUNT, "unknown": {"type": "array", "items": TEXT}}, "labelled"
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
    "unaudited",
    "unrecorded",
)
_STREAM_NUMBERS = ("entropy", "alpha", "diversity", "agreement", "loss", "error", "latency_ms")
