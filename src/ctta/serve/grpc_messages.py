"""The messages of the Open Inference Protocol over gRPC: field names, numbers and types, and the classes made of them.

The classes are built at import, in a descriptor pool of their own. Generated code would be tied to the protobuf version
that generated it, and would clash with the stubs of a client library loaded in the same process, which registers
messages of the same names.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_PARAMETERS = "map InferParameter"
_TENSOR = {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "repeated int64")}
_DATA = {"parameters": (4, _PARAMETERS), "contents": (5, "InferTensorContents")}
_MODEL = {"name": (1, "string"), "version": (2, "string")}
_INFER = {
    "model_name": (1, "string"),
    "model_version": (2, "string"),
    "id": (3, "string"),
    "parameters": (4, _PARAMETERS),
}

#: The fields of every message: number and type. A dot separates a message from the one it is nested in.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**_MODEL, "extensions": (3, "repeated string")},
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "repeated string"),
        "platform": (3, "string"),
        "inputs": (4, "repeated ModelMetadataResponse.TensorMetadata"),
        "outputs": (5, "repeated ModelMetadataResponse.TensorMetadata"),
    },
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "InferParameter": {
        "bool_param": (1, "oneof bool"),
        "int64_param": (2, "oneof int64"),
        "string_param": (3, "oneof string"),
        "double_param": (4, "oneof double"),
        "uint64_param": (5, "oneof uint64"),
    },
    "InferTensorContents": {
        "bool_contents": (1, "repeated bool"),
        "int_contents": (2, "repeated int32"),
        "int64_contents": (3, "repeated int64"),
        "uint_contents": (4, "repeated uint32"),
        "uint64_contents": (5, "repeated uint64"),
        "fp32_contents": (6, "repeated float"),
        "fp64_contents": (7, "repeated double"),
        "bytes_contents": (8, "repeated bytes"),
    },
    "ModelInferRequest": {
        **_INFER,
        "inputs": (5, "repeated ModelInferRequest.InferInputTensor"),
        "outputs": (6, "repeated ModelInferRequest.InferRequestedOutputTensor"),
        "raw_input_contents": (7, "repeated bytes"),
    },
    "ModelInferRequest.InferInputTensor": {**_TENSOR, **_DATA},
    "ModelInferRequest.InferRequestedOutputTensor": {"name": (1, "string"), "parameters": (2, _PARAMETERS)},
    "ModelInferResponse": {
        **_INFER,
        "outputs": (5, "repeated ModelInferResponse.InferOutputTensor"),
        "raw_output_contents": (6, "repeated bytes"),
    },
    "ModelInferResponse.InferOutputTensor": {**_TENSOR, **_DATA},
}
#: The oneof that holds every field of a message marked so.
_ONEOF = "parameter_choice"

_Field = descriptor_pb2.FieldDescriptorProto


def _add_field(message: descriptor_pb2.DescriptorProto, path: str, name: str, number: int, kind: str) -> None:
    *how, what = kind.split()
    field = message.field.add(name=name, number=number, json_name=name, label=_Field.LABEL_OPTIONAL)
    if how in (["repeated"], ["map"]):
        field.label = _Field.LABEL_REPEATED
    if how == ["oneof"]:
        field.oneof_index = 0
    if how == ["map"]:
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "key", 1, "string")
        _add_field(entry, "", "value", 2, what)
        what = f"{path}.{entry.name}"
    if what[0].islower():
        field.type = getattr(_Field, f"TYPE_{what.upper()}")
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{what}"


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="ctta/open_inference.proto", package=PACKAGE, syntax="proto3")
    built: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, fields in _MESSAGES.items():
        parent, _, name = path.rpartition(".")
        message = built[parent].nested_type.add(name=name) if parent else file.message_type.add(name=name)
        built[path] = message
        if any(kind.startswith("oneof") for _, kind in fields.values()):
            message.oneof_decl.add(name=_ONEOF)
        for field, (number, kind) in fields.items():
            _add_field(message, path, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        path: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{path}")) for path in _MESSAGES
    }


#: The message classes, by name. They are made at import, so a type checker knows them as Any.
MESSAGES: dict[str, Any] = _build()
