"""KServe's own clients work unchanged: `make test-kserve` installs them in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from serve.engine import WAIT, classifier, tent

pytestmark = pytest.mark.serve
pytest.importorskip("grpc", reason="needs the extra serve-grpc")

from ctta.serve.grpc import GrpcServer  # noqa: E402
from serve.http_server import HOST, running  # noqa: E402

CLIENT = Path(__file__).parent / "kserve_client.py"


@pytest.mark.skipif("CTTA_KSERVE_PYTHON" not in os.environ, reason="make test-kserve sets it")
def test_the_clients_of_kserve_understand_every_reply() -> None:
    with running() as server:
        grpc = GrpcServer(server.front, f"{HOST}:0")
        port = grpc.start()
        try:
            done = subprocess.run(
                [os.environ["CTTA_KSERVE_PYTHON"], CLIENT, f"http://{HOST}:{server.port}", f"{HOST}:{port}"],
                capture_output=True,
                text=True,
                timeout=2 * WAIT,
                check=False,
            )
        finally:
            grpc.stop()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for front in ("http", "grpc"):
        assert found.pop(f"{front} ready") == [True, True] and found.pop(f"{front} model") is True
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 16, 16)).astype(np.uint8))
    expected = tent(classifier()).predict((images / 255).float())
    assert len(found) == 8
    for name, reply in found.items():
        assert reply["id"] == name
        assert np.allclose(reply["logits"], expected, atol=1e-5), name
