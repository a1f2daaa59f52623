"""The Open Inference Protocol V2, as far as HTTP and gRPC share it: images in, logits or classes out.

Pure functions on typed values. `serve.images` reads the images; `serve.wire` adds the JSON and binary bodies of HTTP.

A model has one input, "images": FP32 in [0, 1] or UINT8 (divided by 255), of shape (N, C, H, W), or (N, H, W, C) if the
input's parameter ``layout`` is "NHWC". It has one output, "logits": FP32 of shape (N, K). An output with the parameter
``classification: k`` holds the k best classes of each image instead, as BYTES "score:index" or "score:index:label".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from ctta._checks.arguments import shown
from ctta.errors import RequestError
from ctta.serve.images import INPUT
from ctta.serve.types import LONGEST_ID, LONGEST_STREAM, Reply
from ctta.version import __version__

OUTPUT = "logits"
#: The stream of requests without a `sequence_id`.
DEFAULT_STREAM = "default"
PLATFORM = "pytorch_ctta"
#: A service has one version of its model; the steps of its streams show how much they have learnt.
VERSION = "1"
EXTENSIONS = ("binary_tensor_data", "classification", "sequence")

Parameter = str | int | float | bool


@dataclass(frozen=True)
class ModelInfo:
    """What clients can read about the model.

    Args:
        name: The name in the paths of its requests.
        num_classes: K, the number of classes.
        class_names: Names of the classes, in order; None if there are none.
        image_shape: Channels, height and width of an image; -1 for those that are not fixed.
    """

    name: str
    num_classes: int
    class_names: tuple[str, ...] | None = None
    image_shape: tuple[int, int, int] = (-1, -1, -1)


@dataclass(frozen=True)
class WantedOutput:
    """One output that a client asks for.

    Args:
        name: The output's name, always "logits".
        classes: How many of the best classes to send for each image; 0 sends the logits.
        binary: Whether to send it as bytes after the JSON (HTTP only).
    """

    name: str = OUTPUT
    classes: int = 0
    binary: bool = False


@dataclass(frozen=True)
class Inference:
    """A request for predictions.

    Args:
        images: Images, float32 (N, C, H, W) in [0, 1].
        stream: The stream's name.
        id: The client's id for the request, or None.
        learn: Whether the client allows the service to learn from the images.
        outputs: The outputs to send, at least one.
    """

    images: Tensor
    stream: str = DEFAULT_STREAM
    id: str | None = None
    learn: bool = True
    outputs: tuple[WantedOutput, ...] = (WantedOutput(),)


@dataclass(frozen=True)
class OutputTensor:
    """One output of a reply.

    Args:
        name: The output's name.
        datatype: "FP32" or "BYTES".
        shape: Its shape.
        values: The numbers of FP32, or the texts of BYTES, in row-major order.
    """

    name: str
    datatype: Literal["FP32", "BYTES"]
    shape: tuple[int, ...]
    values: Tensor | tuple[str, ...]

    def raw(self) -> bytes:
        """Return the values as the protocol's bytes: little-endian numbers, or texts with 4-byte lengths in front."""
        if isinstance(self.values, Tensor):
            return self.values.detach().contiguous().numpy().astype("<f4", copy=False).tobytes()
        texts = [text.encode() for text in self.values]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def request_id(value: object) -> str | None:
    """Check the id of a request.

    Args:
        value: The id; None and "" mean that there is none.

    Raises:
        RequestError: If it is not text, or is too long.
    """
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > LONGEST_ID or not _is_text(value):
        raise RequestError(
            f"The id of a request must be text of at most {LONGEST_ID} characters; got {shown(value)}. Leave it out "
            "if you need none."
        )
    return value


def stream_name(value: object) -> str:
    """Return the stream that a ``sequence_id`` names.

    Args:
        value: Text or a whole number. None, "" and 0 mean that there is none, as in the protocol.

    Raises:
        RequestError: If it is anything else, or is too long.
    """
    if value is None or value == "" or (value == 0 and not isinstance(value, (bool, float))):
        return DEFAULT_STREAM
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64 else value
    if not isinstance(name, str) or len(name) > LONGEST_STREAM or not name.isprintable() or not _is_text(name):
        raise RequestError(
            f"The parameter 'sequence_id' must be a whole number or printable text of at most {LONGEST_STREAM} "
            f"characters, the name of the stream; got {shown(value)}."
        )
    return name


def may_learn(value: object) -> bool:
    """Check the parameter ``learn`` of a request.

    Args:
        value: True or False; None means True.

    Raises:
        RequestError: If it is anything else.
    """
    if value is None:
        return True
    if not isinstance(value, bool):
        raise RequestError(f"The parameter 'learn' must be true or false; got {shown(value)}.")
    return value


def wanted_output(name: object, parameters: Mapping[str, Any], binary: bool = False) -> WantedOutput:
    """Check an output that a client asks for.

    Args:
        name: Its name.
        parameters: Its parameters; only ``classification`` and ``binary_data`` are used.
        binary: Whether outputs are sent as bytes unless they specify it themselves.

    Raises:
        RequestError: If the model has no such output, or a parameter is wrong.
    """
    if name != OUTPUT:
        raise RequestError(f"The model has one output, {OUTPUT!r}; got {shown(name)}. See the model's metadata.")
    classes = parameters.get("classification", 0)
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 0:
        raise RequestError(
            f"The parameter 'classification' must be the number of classes to give; got {shown(classes)}."
        )
    chosen = parameters.get("binary_data", binary)
    if not isinstance(chosen, bool):
        raise RequestError(f"The parameter 'binary_data' must be true or false; got {shown(chosen)}.")
    return WantedOutput(OUTPUT, classes, chosen)


def check_outputs(outputs: Sequence[WantedOutput], binary: bool = False) -> tuple[WantedOutput, ...]:
    """Check the outputs of a request as a whole.

    Args:
        outputs: The outputs that the client asks for; none means all that the model has.
        binary: Whether outputs are sent as bytes unless they specify it themselves.

    Raises:
        RequestError: If an output is requested twice.
    """
    if len({output.name for output in outputs}) != len(outputs):
        raise RequestError(f"The output {OUTPUT!r} is asked for twice. Ask for it once.")
    return tuple(outputs) or (WantedOutput(binary=binary),)


def output_tensor(reply: Reply, wanted: WantedOutput, model: ModelInfo) -> OutputTensor:
    """Make one output of a reply.

    Args:
        reply: The answer of the service.
        wanted: What the client asked for.
        model: The model, for the names of classes.
    """
    logits = reply.logits
    if not wanted.classes:
        return OutputTensor(wanted.name, "FP32", tuple(logits.shape), logits)
    count = min(wanted.classes, logits.shape[1])
    # A stable sort: among equal scores, the smaller index comes first.
    scores, indices = (part[:, :count] for part in logits.sort(dim=1, descending=True, stable=True))
    names = model.class_names
    texts = tuple(
        f"{score:f}:{index}" if names is None else f"{score:f}:{index}:{names[index]}"
        for score, index in zip(scores.flatten().tolist(), indices.flatten().tolist(), strict=True)
    )
    return OutputTensor(wanted.name, "BYTES", (len(logits), count), texts)


def reply_parameters(reply: Reply, stream: str) -> dict[str, Parameter]:
    """Return the parameters of a reply: the stream, and what it had learnt when it answered.

    Args:
        reply: The answer of the service.
        stream: The stream's name.
    """
    found: dict[str, Parameter] = {
        "sequence_id": stream,
        "steps": reply.steps,
        "mode": reply.mode,
        "learnt": reply.learnt,
    }
    return found if reply.snapshot is None else found | {"snapshot": reply.snapshot}


def server_metadata() -> dict[str, Any]:
    """Return the metadata of the server."""
    return {"name": "ctta", "version": __version__, "extensions": list(EXTENSIONS)}


def model_metadata(model: ModelInfo) -> dict[str, Any]:
    """Return the metadata of a model.

    Args:
        model: The model.
    """
    images = {
        "name": INPUT,
        "datatype": "FP32",
        "shape": [-1, *model.image_shape],
        "parameters": {"layout": "NCHW or NHWC", "range": "FP32 in [0, 1], or UINT8, which is divided by 255"},
    }
    logits = {"name": OUTPUT, "datatype": "FP32", "shape": [-1, model.num_classes]}
    return {"name": model.name, "versions": [VERSION], "platform": PLATFORM, "inputs": [images], "outputs": [logits]}


def _is_text(value: str) -> bool:
    # JSON can hold lone surrogates, but files and replies cannot.
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
