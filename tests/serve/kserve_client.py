"""Ask a service with KServe's own clients, over HTTP and gRPC, and print what they understood as JSON.

It runs in an environment of its own, because KServe's package has requirements that ctta does not share.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferInput, InferRequest
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig


def request(name: str, datatype: str, *, binary: bool) -> InferRequest:
    """Two images of noise, always the same ones."""
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 16, 16)).astype(np.uint8)
    data = images if datatype == "UINT8" else (images / 255).astype(np.float32)
    given = InferInput("images", list(data.shape), datatype)
    given.set_data_from_numpy(data, binary_data=binary)
    return InferRequest("tiny", [given], request_id=name, parameters={"sequence_id": name, "learn": False})


def told(response: Any) -> dict[str, Any]:
    """What a client made of a reply."""
    return {"id": response.id, "logits": response.outputs[0].as_numpy().tolist()}


async def main(http: str, grpc: str) -> None:
    """Ask in every form."""
    rest, remote = InferenceRESTClient(RESTConfig(protocol="v2")), InferenceGRPCClient(grpc)
    found: dict[str, Any] = {
        "http ready": [await rest.is_server_live(http), await rest.is_server_ready(http)],
        "http model": await rest.is_model_ready(http, "tiny"),
        "grpc ready": [await remote.is_server_live(), await remote.is_server_ready()],
        "grpc model": await remote.is_model_ready("tiny"),
    }
    for datatype in ("FP32", "UINT8"):
        for binary in (False, True):
            form = f"{datatype} {'binary' if binary else 'plain'}"
            over_http = await rest.infer(http, request(f"http {form}", datatype, binary=binary), model_name="tiny")
            over_grpc = await remote.infer(request(f"grpc {form}", datatype, binary=binary))
            found |= {f"http {form}": told(over_http), f"grpc {form}": told(over_grpc)}
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
