"""Damaged checkpoints: every one is refused by name, or holds exactly what was saved."""

from __future__ import annotations

import json
import random
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctta
from ctta import errors
from ctta.testing.compare import difference
from reference import net, stream

LONG = 3000

Damage = Callable[[bytearray, random.Random], None]


def main(count: int, seed: int) -> None:
    """Load ``count`` damaged files; raise on an error without a name and on a changed state that was accepted."""
    chance = random.Random(seed)
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        files = saved_files(Path(folder))
        for i in range(count):
            refused += not survives(files[i % len(files)], DAMAGES[i % len(DAMAGES)], chance)
    print(f"{count} damaged checkpoints: {refused} refused by name, {count - refused} unchanged, 0 changed silently")


def saved_files(folder: Path) -> list[Path]:
    """Checkpoints of methods whose states differ in kind: an optimizer, a memory of images, prototypes, a window."""
    adapters = [
        ctta.Tent(net(), window=16),
        ctta.RoTTA(net(), memory_size=4, update_every=8),
        ctta.DMSE(net()),
        ctta.BN(net()),
    ]
    files = []
    for adapter in adapters:
        for x in stream()[:2]:
            adapter(x)
        files.append(folder / f"{type(adapter).__name__}.ctta")
        adapter.save(files[-1])
    return files


def survives(file: Path, damage: Damage, chance: random.Random) -> bool:
    """Whether a damaged copy loads, and then holds what the file holds. Any error but a named one is raised."""
    data = bytearray(file.read_bytes())
    damage(data, chance)
    copy = file.with_suffix(".damaged")
    copy.write_bytes(data)
    try:
        found = ctta.Adapter.load(copy, net())
    except errors.CttaError:
        return False
    truth = ctta.Adapter.load(file, net())
    changed = difference(truth.state_dict(), found.state_dict()) or difference(_plain(truth), _plain(found), "settings")
    assert changed is None, f"{damage.__name__} of {file.name} changed the state without a word: {changed}"
    return True


def _plain(adapter: ctta.Adapter) -> dict[str, str]:
    return {name: repr(value) for name, value in adapter.settings.items()}


def flip_a_bit(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def flip_a_bit_of_the_header(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(8 + _header_size(data))] ^= 1 << chance.randrange(8)


def cut_off(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def zero_a_page(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    length = len(data[start : start + 512])
    data[start : start + 512] = bytes(length)


def insert_bytes(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.randrange(1, 9))


def remove_bytes(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.randrange(1, 9)]


def repeat_a_part(data: bytearray, chance: random.Random) -> None:
    at, to = chance.randrange(len(data)), chance.randrange(len(data))
    part = data[at : at + 256]
    data[to : to + len(part)] = part


def append_bytes(data: bytearray, chance: random.Random) -> None:
    data += chance.randbytes(chance.randrange(1, 100))


def change_the_header(data: bytearray, chance: random.Random) -> None:
    """Put a value of another kind somewhere into ctta's own header; the digest stays as it was."""
    _with_header(data, lambda header: _change(header, chance))


def change_an_old_header(data: bytearray, chance: random.Random) -> None:
    """As change_the_header, in a file of the first format, which has no digest; only values without meaning."""

    def change(header: Any) -> None:
        header["format"] = 1
        _drop(header, chance)

    _with_header(data, change)


def change_a_tensor_entry(data: bytearray, chance: random.Random) -> None:
    """Give a tensor another dtype, shape or place."""
    size = _header_size(data)
    header = json.loads(data[8 : 8 + size])
    name = chance.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    kind = chance.randrange(4)
    if kind == 0:
        entry["dtype"] = chance.choice(["F16", "BF16", "I64", "F64", "U8", "F8_E4M3", "C64", "F4", "X"])
    elif kind == 1:
        entry["shape"] = [*entry["shape"], 1]
    elif kind == 2:
        header[name + "x"] = header.pop(name)
    else:
        entry["data_offsets"] = [value + 8 for value in entry["data_offsets"]]
    _write_header(data, size, header)


DAMAGES: list[Damage] = [
    flip_a_bit,
    flip_a_bit_of_the_header,
    cut_off,
    zero_a_page,
    insert_bytes,
    remove_bytes,
    repeat_a_part,
    append_bytes,
    change_the_header,
    change_an_old_header,
    change_a_tensor_entry,
]


def _header_size(data: bytearray) -> int:
    return int(struct.unpack("<Q", data[:8])[0])


def _with_header(data: bytearray, change: Callable[[Any], None]) -> None:
    size = _header_size(data)
    outer = json.loads(data[8 : 8 + size])
    inner = json.loads(outer["__metadata__"]["ctta"])
    change(inner)
    outer["__metadata__"]["ctta"] = json.dumps(inner)
    _write_header(data, size, outer)


def _write_header(data: bytearray, size: int, header: Any) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data[: 8 + size] = struct.pack("<Q", len(text)) + text


_OTHER_VALUES = (None, [], {}, "x", -1, 1e308, True, {"tensor": "x"}, {"map": 3}, [[1]])


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container inside a JSON value, with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


def _change(header: Any, chance: random.Random) -> None:
    container, key = chance.choice(_places(header))
    container[key] = chance.choice([v for v in _OTHER_VALUES if v != container[key]])


def _drop(header: Any, chance: random.Random) -> None:
    """Replace part of the structure by a value that does not fit there."""
    places = [(c, k) for c, k in _places(header["extra"]) if isinstance(c[k], (dict, list))]
    container, key = chance.choice(places)
    container[key] = {"map": 3}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LONG, seed=0)
