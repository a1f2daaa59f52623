"""JPEG compression with Pillow, whose codecs take longer to start than to code a small image."""

from __future__ import annotations

import re
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ctta.corruptions.constants import Constants
from ctta.corruptions.draws import Draws
from ctta.errors import ImageShape

_core: Any = Image.core  # type: ignore[attr-defined] # the codecs, which have no types
#: Bytes that the encoder may write at once.
_BUFFER: Final = 2**16
#: Rows of pixels that are encoded together in colour; in grey, half as many.
_ROWS: Final = 16
#: The segments that hold the size and that end the header.
_FRAME, _SCAN = 0xC0, 0xDA
_END: Final = b"\xff\xd9"
#: What marks a restart: in the code of pixels, any other byte of ones is followed by zero.
_RESTART: Final = re.compile(b"\xff[\xd0-\xd7]")


def jpeg_compression(x: Tensor, c: Constants, draws: Draws) -> Tensor:
    """Encode as JPEG and decode, with Pillow.

    Args:
        x: (N, C, H, W), uint8.
        c: `quality`, the JPEG quality passed to Pillow.
        draws: Unused: this corruption is deterministic.
    """
    together = max(1, 2**16 // (x.shape[2] * x.shape[3]))
    out = np.empty(x.shape, dtype=np.uint8)
    for first in range(0, len(x), together):
        some = slice(first, first + together)
        _jpeg(x.numpy()[some], int(c["quality"]), out[some])
    return torch.from_numpy(out)


def _jpeg(images: NDArray[np.uint8], quality: int, out: NDArray[np.uint8]) -> None:
    n, count, height, width = images.shape
    channels = "RGB" if count == 3 else "L"
    # Stack the images into one tall picture: Pillow interleaves channels faster than a permuted copy would.
    planes = np.ascontiguousarray(images.swapaxes(0, 1))
    bands = [Image.frombuffer("L", (width, n * height), plane, "raw", "L", 0, 1) for plane in planes]
    tall = Image.merge(channels, bands)
    for i, code in enumerate(_encode_all(tall, height, quality)):
        _decode(tall, _box(tall, i, height), code)
    for i, channel in enumerate(channels):
        plane = np.frombuffer(tall.tobytes("raw", channel), dtype=np.uint8)
        out[:, i] = plane.reshape(n, height, width)


def _box(tall: Image.Image, i: int, height: int) -> tuple[int, int, int, int]:
    return 0, i * height, tall.width, (i + 1) * height


def _encode_all(tall: Image.Image, height: int, quality: int) -> list[bytes]:
    """Encode every image of a tall picture; all at once if the code can be cut between them."""
    n = tall.height // height
    if n > 1 and height % _ROWS == 0:
        rows = height // (_ROWS if tall.mode == "RGB" else _ROWS // 2)
        codes = _cut(_encode(tall, (0, 0, *tall.size), _settings(tall.mode, quality, rows)), height)
        if len(codes) == n:  # else this version of Pillow does not write restarts
            return codes
    settings = _settings(tall.mode, quality)
    return [_encode(tall, _box(tall, i, height), settings) for i in range(n)]


def _cut(code: bytes, height: int) -> list[bytes]:
    """Cut the code of stacked images, with a restart after each, into one code per image.

    Nothing is carried over a restart, so that what stands between two is an image encoded by itself.
    """
    pieces, kind, at = [code[:2]], 0, 2
    while kind != _SCAN:
        kind, end = code[at + 1], at + 2 + int.from_bytes(code[at + 2 : at + 4], "big")
        segment = code[at:end]
        pieces.append(segment[:5] + height.to_bytes(2, "big") + segment[7:] if kind == _FRAME else segment)
        at = end
    header = b"".join(pieces)
    return [header + pixels + _END for pixels in _RESTART.split(code[at : -len(_END)])]


def _encode(picture: Image.Image, box: tuple[int, int, int, int], settings: tuple[object, ...]) -> bytes:
    """Encode a part of a picture.

    With the encoder itself: Pillow takes as long to write the file around it, and to cut out the part.
    """
    encoder = _core.jpeg_encoder(picture.mode, picture.mode, *settings)
    encoder.setimage(picture.im, box)
    code, status = [], 0
    while status == 0:
        _, status, part = encoder.encode(_BUFFER)
        code.append(part)
    encoder.cleanup()
    _check(status >= 0, box)
    return b"".join(code)


def _decode(picture: Image.Image, box: tuple[int, int, int, int], code: bytes) -> None:
    """Decode into a part of a picture."""
    decoder = _core.jpeg_decoder(picture.mode, picture.mode, "")
    decoder.setimage(picture.im, box)
    consumed, failed = decoder.decode(code)
    decoder.cleanup()
    _check(consumed < 0 and not failed, box)


def _check(succeeded: bool, box: tuple[int, int, int, int]) -> None:
    if not succeeded:
        raise ImageShape(f"Pillow could not encode a picture of {box[2]} x {box[3] - box[1]} pixels as JPEG.")


@lru_cache(maxsize=16)
def _settings(mode: str, quality: int, rows: int = 0) -> tuple[object, ...]:
    """Return what Pillow passes to its JPEG encoder for a picture saved with this quality and restarts."""
    picture = Image.new(mode, (16, 16))
    picture.save(BytesIO(), "JPEG", quality=quality, restart_marker_rows=rows)
    settings: tuple[object, ...] = picture.encoderconfig
    return settings
