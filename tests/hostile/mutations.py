"""Damage to the bytes of a file."""

from __future__ import annotations

import random
from collections.abc import Callable

Mutate = Callable[[random.Random, bytes], bytes]


def _at(draw: random.Random, data: bytes) -> int:
    # Headers are short and matter most.
    return draw.randrange(min(len(data), draw.choice((64, 512, len(data)))))


def flip_a_bit(draw: random.Random, data: bytes) -> bytes:
    place = _at(draw, data)
    return data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]


def set_bytes(draw: random.Random, data: bytes) -> bytes:
    place, count = _at(draw, data), draw.choice((1, 2, 4, 8))
    return data[:place] + draw.choice((b"\xff", b"\x00", b"9", b"\x80")) * count + data[place + count :]


def truncate(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data))]


def insert(draw: random.Random, data: bytes) -> bytes:
    place = _at(draw, data)
    return data[:place] + draw.randbytes(draw.randint(1, 16)) + data[place:]


def delete(draw: random.Random, data: bytes) -> bytes:
    place = _at(draw, data)
    return data[:place] + data[place + draw.randint(1, 16) :]


def blank_a_block(draw: random.Random, data: bytes) -> bytes:
    place, count = _at(draw, data), draw.choice((16, 512, 4096))
    return data[:place] + b"\0" * len(data[place : place + count]) + data[place + count :]


def repeat_a_block(draw: random.Random, data: bytes) -> bytes:
    place = _at(draw, data)
    return data[:place] + data[place : place + draw.randint(1, 512)] + data[place:]


def append(draw: random.Random, data: bytes) -> bytes:
    return data + draw.randbytes(draw.randint(1, 64))


def enlarge_a_number(draw: random.Random, data: bytes) -> bytes:
    digits = [place for place in range(min(len(data), 4096)) if data[place : place + 1].isdigit()]
    if not digits:
        return flip_a_bit(draw, data)
    place = draw.choice(digits)
    return data[:place] + b"9" * draw.choice((1, 3, 12, 5000)) + data[place + 1 :]


def replace_all(draw: random.Random, data: bytes) -> bytes:
    texts = (b"", b"<html>404</html>", b"{}", b"[" * 100_000, b"\xff\xfe\x00", b"PK\x03\x04", b"\x93NUMPY\x01\x00")
    return draw.choice((*texts, draw.randbytes(300)))


MUTATIONS: tuple[Mutate, ...] = (
    flip_a_bit,
    set_bytes,
    truncate,
    insert,
    delete,
    blank_a_block,
    repeat_a_block,
    append,
    enlarge_a_number,
    replace_all,
)
