"""A client for the demo: streams of digits under drifting corruptions, sent over HTTP, with late labels."""

from __future__ import annotations

import http.client
import json
import logging
import secrets
import threading
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ctta.corruptions import corrupt
from ctta.datasets.arrays import Images
from ctta.datasets.digits import digits
from ctta.serve.images import INPUT
from ctta.serve.protocol import OUTPUT
from ctta.serve.wire import HEADER_LENGTH

logger = logging.getLogger("ctta")

#: The corruptions of each stream, in order: a slow change of weather, of lenses, and of sensors.
WEATHER = {
    "street": ("brightness", "fog", "snow", "frost"),
    "dock": ("defocus_blur", "motion_blur", "zoom_blur", "glass_blur"),
    "night": ("gaussian_noise", "shot_noise", "impulse_noise", "pixelate"),
}
_BATCH = 16
#: Requests per corruption and severity; requests until the labels of one are sent; seconds between two requests.
_STAY, _LATE, _PAUSE = 12, 5, 0.2


class DriftingClient:
    """Sends digits to a service from its own thread.

    Args:
        host: The host on which the service listens.
        port: Its port.
        model: The model's name.
        pause: Seconds between two rounds of requests, one of each stream.
    """

    def __init__(self, host: str, port: int, model: str = "digits", pause: float = _PAUSE) -> None:
        self._address = (host, port)
        self._images = digits().stream
        self._path = f"/v2/models/{model}/infer"
        self._pause = pause
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ctta-demo", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait until the last request is answered."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        cameras = [Camera(name, self._images, seed) for seed, name in enumerate(WEATHER)]
        while not self._stopping.is_set():
            try:
                connection = http.client.HTTPConnection(*self._address, timeout=60)
                while not self._stopping.wait(self._pause):
                    for camera in cameras:
                        self._turn(connection, camera)
            except (OSError, http.client.HTTPException) as error:
                logger.debug("the demo's client: %s", error)  # the server is starting or stopping
            finally:
                connection.close()

    def _turn(self, connection: http.client.HTTPConnection, camera: Camera) -> None:
        name, x, labels = camera.next()
        body, length = inference(camera.name, name, x)
        _call(connection, "POST", self._path, body, {HEADER_LENGTH: str(length)})
        if late := camera.labels_of(name, labels):
            _call(connection, "POST", f"/ctta/streams/{camera.name}/labels", json.dumps({"labels": late}).encode(), {})


@dataclass
class Camera:
    """One stream of the demo.

    Args:
        name: The stream's name, a key of `WEATHER`.
        images: Clean digits.
        seed: Seed of their order and of the corruptions.
        sent: Requests sent.
        token: Part of every id. It is drawn at random, because a service that resumes does not learn from an id twice.
        unlabelled: Ids and labels of the last requests.
    """

    name: str
    images: Images
    seed: int
    sent: int = 0
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    unlabelled: deque[tuple[str, list[int]]] = field(default_factory=deque)

    def next(self) -> tuple[str, Tensor, list[int]]:
        """Return the id, the images (uint8) and the labels of the next request."""
        kinds = WEATHER[self.name]
        stage = self.sent // _STAY
        kind, severity = kinds[stage // 5 % len(kinds)], 1 + stage % 5
        generator = torch.Generator().manual_seed(1000 * self.sent + self.seed)
        taken = self.images.take(torch.randint(len(self.images), (_BATCH,), generator=generator))
        # The constants of ImageNet-C, as in `ctta demo`: CIFAR's leave most digits as they are.
        x = corrupt(taken.x, kind, severity=severity, seed=self.sent, scale="imagenet")
        self.sent += 1
        return f"{self.name}-{self.token}-{self.sent}", x, taken.y.tolist()

    def labels_of(self, name: str, labels: list[int]) -> dict[str, list[int]]:
        """Remember the labels of a request, and return those of an earlier one if it is old enough.

        Args:
            name: The id of the request.
            labels: Its labels.
        """
        self.unlabelled.append((name, labels))
        return dict([self.unlabelled.popleft()]) if len(self.unlabelled) > _LATE else {}


def inference(stream: str, name: str, x: Tensor) -> tuple[bytes, int]:
    """Make the body of a request with the images as bytes.

    Args:
        stream: The stream's name.
        name: The id of the request.
        x: Images (N, C, H, W), uint8.

    Returns:
        The body, and how many bytes of it are JSON.
    """
    head = json.dumps(
        {
            "id": name,
            "parameters": {"sequence_id": stream},
            "inputs": [
                {
                    "name": INPUT,
                    "datatype": "UINT8",
                    "shape": list(x.shape),
                    "parameters": {"binary_data_size": x.numel()},
                }
            ],
            "outputs": [{"name": OUTPUT, "parameters": {"binary_data": True}}],
        }
    ).encode()
    return head + x.numpy().tobytes(), len(head)


def _call(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes, headers: dict[str, str]
) -> bytes:
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    said = reply.read()
    if reply.status != 200:
        logger.warning("the demo's client: %s %s: %s", reply.status, path, said[:200].decode(errors="replace"))
    return said
