"""Measure what the protocol costs: `python -m benchmarks.serve_protocol`.

CPU milliseconds of the server per request with one image, over HTTP with JSON, HTTP with binary tensors, and gRPC, each
beyond the same request submitted in the process. The client is another process, so its CPU time does not count. The
variants take turns, so that a busy machine slows all of them down alike; the result is the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from ctta._system.files import write_atomically
from ctta.classifier import Classifier
from ctta.methods.source import Source
from ctta.serve.demo import inference
from ctta.serve.front import Front
from ctta.serve.grpc import GrpcServer
from ctta.serve.grpc_messages import MESSAGES
from ctta.serve.http import HttpFront
from ctta.serve.server import Server, bind
from ctta.serve.service import Service
from ctta.serve.types import Ask, Limits
from ctta.serve.wire import HEADER_LENGTH
from ctta.testing.models import bn_cnn

MODEL = "tiny"
STREAM = "cam"
IN_PROCESS = "in the process"
VARIANTS = ("HTTP, JSON", "HTTP, binary", "gRPC")


class Client:
    """The client's process.

    Args:
        folder: A folder for the bodies of the requests.
        http: The port of the HTTP server.
        grpc: The port of the gRPC server.
        side: Side of the image in pixels.
    """

    def __init__(self, folder: Path, http: int, grpc: int, side: int) -> None:
        x = torch.randint(0, 256, (1, 3, side, side), dtype=torch.uint8)
        tensor = {"name": "images", "datatype": "UINT8", "shape": list(x.shape)}
        parameters = {"sequence_id": STREAM}
        text = json.dumps({"parameters": parameters, "inputs": [tensor | {"data": x.flatten().tolist()}]}).encode()
        binary, length = inference(STREAM, "", x)
        message = MESSAGES["ModelInferRequest"](model_name=MODEL, raw_input_contents=[x.numpy().tobytes()])
        message.parameters["sequence_id"].string_param = STREAM
        message.inputs.add(name="images", datatype="UINT8", shape=list(x.shape))
        infer = f"/v2/models/{MODEL}/infer"
        bodies = (text, binary, message.SerializeToString())
        fronts: tuple[tuple[str, int, str, dict[str, str]], ...] = (
            ("http", http, infer, {}),
            ("http", http, infer, {HEADER_LENGTH: str(length)}),
            ("grpc", grpc, "/inference.GRPCInferenceService/ModelInfer", {}),
        )
        self._commands: dict[str, dict[str, Any]] = {}
        for name, body, (front, port, path, headers) in zip(VARIANTS, bodies, fronts, strict=True):
            file = folder / f"{len(self._commands)}"
            file.write_bytes(body)
            command = {"name": name, "front": front, "port": port, "path": path, "headers": headers, "body": str(file)}
            self._commands[name] = command
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.protocol_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )

    def send(self, name: str, count: int) -> None:
        """Send a request repeatedly, and wait for the last reply."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(self._commands[name] | {"count": count}), file=self._process.stdin, flush=True)
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError("The client stopped; its error is above.")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@contextmanager
def serving(side: int) -> Iterator[tuple[Service, Client]]:
    """Run a service of a tiny frozen network behind both front ends, and a client."""
    source = Classifier(bn_cnn(), mean=(0.5,) * 3, std=(0.25,) * 3)
    limits = Limits(wait=0.0, learn_share=1.0)
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        service = Service(source, Source, name=MODEL, state=folder / "state", limits=limits, mode="frozen", guard=())
        ends.callback(service.close)
        front = Front(service, source)
        grpc = GrpcServer(front, "127.0.0.1:0")
        grpc_port = grpc.start()
        ends.callback(grpc.stop)
        listening = ends.enter_context(bind("127.0.0.1", 0))
        server = Server(HttpFront(front))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join()

        ends.callback(stop)
        client = Client(folder, listening.getsockname()[1], grpc_port, side)
        ends.callback(client.close)
        yield service, client


def measure(side: int, requests: int, rounds: int) -> dict[str, float]:
    """Return the CPU milliseconds per request in the process, and of every variant beyond that."""
    x = torch.rand(1, 3, side, side)
    with serving(side) as (service, client):
        works: dict[str, Callable[[int], None]] = {IN_PROCESS: lambda count: _submit(service, x, count)}
        works |= {name: lambda count, name=name: client.send(name, count) for name in VARIANTS}  # type: ignore[misc]
        for work in works.values():
            work(max(1, requests // 10))  # warms up
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                began = time.process_time()
                work(requests)
                times[name].append(1000 * (time.process_time() - began) / requests)
    base = times[IN_PROCESS]
    beyond = {
        name: statistics.median(one - other for one, other in zip(times[name], base, strict=True)) for name in VARIANTS
    }
    return {IN_PROCESS: statistics.median(base), **beyond}


def _submit(service: Service, x: torch.Tensor, count: int) -> None:
    for _ in range(count):
        service.submit(Ask(STREAM, x)).result()


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve_protocol", description=__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[32], help="sides of the image in pixels")
    parser.add_argument("--requests", type=int, default=500, help="requests of one turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {}
    for side in args.sides:
        found[f"{side} px"] = times = measure(side, args.requests, args.rounds)
        told = ", ".join(f"{name} {'+' if name != IN_PROCESS else ''}{value:.2f} ms" for name, value in times.items())
        print(f"CPU of the server per request with one image of {side} px: {told}", flush=True)
    if args.json is not None:
        write_atomically(args.json, json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
