"""Bodies of HTTP requests and replies: JSON, with tensors in it or as bytes after it (the binary tensor extension)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

from ctta._checks.arguments import shown
from ctta.errors import NonFiniteLogits, RequestError, RequestTooLarge
from ctta.serve.images import INPUT, ImageTensor, image_tensor, images_from_bytes, images_from_numbers
from ctta.serve.protocol import (
    VERSION,
    Inference,
    ModelInfo,
    OutputTensor,
    check_outputs,
    may_learn,
    output_tensor,
    reply_parameters,
    request_id,
    stream_name,
    wanted_output,
)
from ctta.serve.types import Limits, Reply

#: The header that gives how many bytes of a body are JSON; the rest are tensors.
HEADER_LENGTH = "Inference-Header-Content-Length"
#: Maximum bytes of JSON. Parsed, it takes many times its size; larger tensors are sent as bytes after it.
MOST_JSON = 8 << 20
_FOR_JSON = 1 << 16


@dataclass(frozen=True)
class Body:
    """The body of a reply.

    Args:
        content: The bytes.
        json_bytes: How many of them are JSON, if tensors follow; None if all are.
    """

    content: bytes
    json_bytes: int | None = None


def most_bytes(limits: Limits) -> int:
    """Return how many bytes the body of a request may have.

    Args:
        limits: The limits of the service.
    """
    return max(MOST_JSON, 4 * limits.pixels + _FOR_JSON)


def parse_json(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        data: The bytes.

    Raises:
        RequestTooLarge: If it is longer than `MOST_JSON`.
        RequestError: If it is not a JSON object, is nested too deeply, or contains NaN.
    """
    if len(data) > MOST_JSON:
        raise RequestTooLarge(
            f"A request may have {MOST_JSON} bytes of JSON; got {len(data)}. Send tensors as bytes (the binary tensor "
            "extension)."
        )
    try:
        found = json.loads(str(data, "utf-8"), parse_constant=_refuse_constant)
    except RequestError:
        raise
    except RecursionError:
        raise RequestError("The JSON is nested too deep.") from None
    except ValueError as error:
        raise RequestError(f"The body must be JSON: {error}.") from None
    if not isinstance(found, dict):
        raise RequestError(f"The body must be a JSON object; got {shown(found)}.")
    return found


def parse_inference(body: bytes | bytearray, header_length: str | None, limits: Limits) -> Inference:
    """Read the body of an inference request.

    Args:
        body: The whole body.
        header_length: The value of the header `HEADER_LENGTH`, if there is one.
        limits: The limits of the service.

    Raises:
        InputError: If the request cannot be used; the message says why.
    """
    view = memoryview(body)
    length = _json_length(header_length, len(body))
    head, tail = view[:length], view[length:]
    message = parse_json(head)
    parameters = _parameters(message, "the request")
    binary = parameters.get("binary_data_output", False)
    if not isinstance(binary, bool):
        raise RequestError(f"The parameter 'binary_data_output' must be true or false; got {shown(binary)}.")
    outputs = [
        wanted_output(output.get("name"), _parameters(output, "an output"), binary)
        for output in _objects(message.get("outputs", []), "outputs")
    ]
    inputs = _objects(message.get("inputs"), "inputs")
    if len(inputs) != 1:
        raise RequestError(f"A request has one input, {INPUT!r}; got {len(inputs)}.")
    return Inference(
        images=_input(inputs[0], tail, limits),
        stream=stream_name(parameters.get("sequence_id")),
        id=request_id(message.get("id")),
        learn=may_learn(parameters.get("learn")),
        outputs=check_outputs(outputs, binary),
    )


def pack_reply(request: Inference, reply: Reply, model: ModelInfo) -> Body:
    """Make the body of the reply to an inference request.

    Args:
        request: The request.
        reply: The answer of the service.
        model: The model.

    Raises:
        NonFiniteLogits: If the logits cannot be written as JSON.
    """
    outputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for wanted in request.outputs:
        tensor = output_tensor(reply, wanted, model)
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if wanted.binary:
            raw = tensor.raw()
            tail.append(raw)
            entry["parameters"] = {"binary_data_size": len(raw)}
        else:
            entry["data"] = _json_values(tensor)
        outputs.append(entry)
    message: dict[str, Any] = {"model_name": model.name, "model_version": VERSION}
    if request.id is not None:
        message["id"] = request.id
    message |= {"parameters": reply_parameters(reply, request.stream), "outputs": outputs}
    head = dump_json(message)
    return Body(b"".join((head, *tail)), len(head)) if tail else Body(head)


def dump_json(value: Any) -> bytes:
    """Write JSON without spaces.

    Args:
        value: What to write; NaN and Inf are not JSON and raise ValueError.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def parse_labels(data: bytes | bytearray) -> dict[str, list[int]]:
    """Read late labels: ``{"labels": {"request id": [class, ...]}}``.

    Args:
        data: The body of the request.

    Raises:
        RequestError: If it is anything else. Whether the numbers are classes of the model is not checked here.
    """
    labels = parse_json(data).get("labels")
    if not isinstance(labels, dict) or not all(isinstance(classes, list) for classes in labels.values()):
        raise RequestError(
            'The body must be {"labels": {"request id": [class index of every image]}}; got '
            f"{shown(labels)} as labels."
        )
    return labels


def option(message: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Return a value of a JSON object.

    Args:
        message: The object.
        name: The key.
        kind: The type that the value must have.
        default: The value if the key is missing or null.

    Raises:
        RequestError: If the value has another type.
    """
    value = message.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        names = {str: "text", bool: "true or false"}
        raise RequestError(f"{name!r} must be {names.get(kind, kind.__name__)}; got {shown(value)}.")
    return value


def _json_length(header: str | None, total: int) -> int:
    if header is None:
        return total
    if not (header.isascii() and header.isdigit()) or len(header) > 18 or int(header) > total:
        raise RequestError(
            f"The header {HEADER_LENGTH} must be the number of bytes of JSON in the body, which has {total} bytes; got "
            f"{shown(header)}."
        )
    return int(header)


def _input(given: Mapping[str, Any], tail: memoryview, limits: Limits) -> Tensor:
    parameters = _parameters(given, "an input")
    declared = image_tensor(given.get("name"), given.get("datatype"), given.get("shape"), parameters, limits)
    size = parameters.get("binary_data_size")
    if (size is None) == ("data" not in given):
        raise RequestError(
            f"The input {INPUT!r} needs either 'data' or the parameter 'binary_data_size'; it has "
            f"{'neither' if size is None else 'both'}."
        )
    if size is None:
        if len(tail):
            raise RequestError(f"{len(tail)} bytes follow the JSON that belong to no input.")
        return _numbers(declared, given["data"])
    if isinstance(size, bool) or not isinstance(size, int) or size != len(tail):
        raise RequestError(
            f"The parameter 'binary_data_size' must be the number of bytes behind the JSON, which is {len(tail)}; got "
            f"{shown(size)}. Set the header {HEADER_LENGTH} to the length of the JSON."
        )
    return images_from_bytes(declared, tail)


def _numbers(declared: ImageTensor, data: object) -> Tensor:
    if not isinstance(data, list):
        raise RequestError(f"The data of {INPUT!r} must be a list of numbers; got {shown(data)}.")
    return images_from_numbers(declared, data)


def _json_values(tensor: OutputTensor) -> Sequence[float | str]:
    if not isinstance(tensor.values, Tensor):
        return tensor.values
    if not tensor.values.isfinite().all():
        raise NonFiniteLogits("The model's logits are not finite, which JSON cannot hold. Roll the stream back.")
    values: list[float] = tensor.values.flatten().tolist()
    return values


def _parameters(message: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    found = message.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RequestError(f"The parameters of {where} must be a JSON object; got {shown(found)}.")
    return found


def _objects(value: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise RequestError(f"{name!r} must be a list of JSON objects; got {shown(value)}.")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise RequestError(f"JSON has no {text}. Images must be finite.")
