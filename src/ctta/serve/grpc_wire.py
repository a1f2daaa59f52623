"""Convert between gRPC messages and the values of the protocol. Pure: no server, no connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ctta.errors import ImageDtype, RequestError
from ctta.serve.grpc_messages import MESSAGES
from ctta.serve.images import INPUT, image_tensor, images_from_bytes, images_from_numbers
from ctta.serve.protocol import (
    VERSION,
    Inference,
    ModelInfo,
    Parameter,
    check_outputs,
    may_learn,
    model_metadata,
    output_tensor,
    reply_parameters,
    request_id,
    server_metadata,
    stream_name,
    wanted_output,
)
from ctta.serve.types import Limits, Reply

#: The field of typed contents that holds the numbers of a datatype.
_CONTENTS = {"UINT8": "uint_contents", "FP32": "fp32_contents"}
#: Bytes of a message besides the images.
_FOR_FIELDS = 1 << 16
#: A whole number from 0 to 255 takes two bytes in typed contents; float32 takes four there and in raw contents.
_PER_NUMBER = 4


def most_bytes(limits: Limits) -> int:
    """Return how many bytes a message may have.

    Args:
        limits: The limits of the service.
    """
    return _PER_NUMBER * limits.pixels + _FOR_FIELDS


def parse_inference(message: Any, limits: Limits) -> Inference:
    """Read an inference request.

    Args:
        message: A ModelInferRequest.
        limits: The limits of the service.

    Raises:
        InputError: If the request cannot be used; the message says why.
    """
    parameters = _parameters(message.parameters)
    if len(message.inputs) != 1:
        raise RequestError(f"A request has one input, {INPUT!r}; got {len(message.inputs)}.")
    outputs = [wanted_output(output.name, _parameters(output.parameters)) for output in message.outputs]
    return Inference(
        images=_images(message, limits),
        stream=stream_name(parameters.get("sequence_id")),
        id=request_id(message.id),
        learn=may_learn(parameters.get("learn")),
        outputs=check_outputs(outputs),
    )


def pack_reply(request: Inference, reply: Reply, model: ModelInfo) -> Any:
    """Make the reply to an inference request, with raw contents.

    Args:
        request: The request.
        reply: The answer of the service.
        model: The model.

    Returns:
        A ModelInferResponse.
    """
    message = MESSAGES["ModelInferResponse"](model_name=model.name, model_version=VERSION, id=request.id or "")
    for name, value in reply_parameters(reply, request.stream).items():
        setattr(message.parameters[name], _choice(value), value)
    for wanted in request.outputs:
        tensor = output_tensor(reply, wanted, model)
        message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        message.raw_output_contents.append(tensor.raw())
    return message


def pack_server_metadata() -> Any:
    """Return the metadata of the server, a ServerMetadataResponse."""
    return MESSAGES["ServerMetadataResponse"](**server_metadata())


def pack_model_metadata(model: ModelInfo) -> Any:
    """Return the metadata of a model, a ModelMetadataResponse.

    Args:
        model: The model.
    """
    found = model_metadata(model)
    known = ("name", "datatype", "shape")
    tensors = {kind: [{key: one[key] for key in known} for one in found[kind]] for kind in ("inputs", "outputs")}
    return MESSAGES["ModelMetadataResponse"](**{**found, **tensors})


def _images(message: Any, limits: Limits) -> Tensor:
    given = message.inputs[0]
    parameters = _parameters(given.parameters)
    declared = image_tensor(given.name, given.datatype, list(given.shape), parameters, limits)
    raw = message.raw_input_contents
    if len(raw) > 1 or bool(raw) == given.HasField("contents"):
        raise RequestError(
            f"The input {INPUT!r} needs either one entry of raw_input_contents or its own contents; got {len(raw)} "
            f"and {'contents' if given.HasField('contents') else 'no contents'}."
        )
    if raw:
        return images_from_bytes(declared, raw[0])
    filled = [field.name for field, _ in given.contents.ListFields()]
    expected = _CONTENTS[declared.datatype]
    if filled != [expected]:
        raise ImageDtype(
            f"The contents of {INPUT!r} with datatype {declared.datatype} must be in {expected}; got "
            f"{', '.join(filled) or 'none'}."
        )
    return images_from_numbers(declared, getattr(given.contents, expected))


def _parameters(found: Mapping[str, Any]) -> dict[str, Parameter | None]:
    values = {}
    for name, parameter in found.items():
        choice = parameter.WhichOneof("parameter_choice")
        values[name] = None if choice is None else getattr(parameter, choice)
    return values


def _choice(value: Parameter) -> str:
    for kind, choice in ((bool, "bool_param"), (int, "int64_param"), (float, "double_param")):
        if isinstance(value, kind):
            return choice
    return "string_param"
