"""Arrays in damaged or hostile files: a named error before anything large is allocated."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ctta.datasets.array_files import read_npy, read_npz
from ctta.errors import BadData
from ctta.streams.datasets import own_arrays

X = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
Y = np.arange(6)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(text: str, *, version: int = 1, length: int | None = None) -> bytes:
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", size) + text.encode()


def described(descr: str = "'|u1'", shape: str = "(6, 8, 8, 3)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"


def write_zip(path: Path, *, method: int = zipfile.ZIP_STORED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (header(described(shape="(10000, 10000, 10000, 3)")) + b"x", r"claims 3000\.0 GB"),
        (header(described(shape="(-6, 8, 8, 3)")), r"claims the shape \(-6"),
        (header(described(shape="(" + "9" * 3000 + ",)")), "claims the shape"),
        (header(described(shape="[6]")), "claims the shape"),
        (header("", version=2, length=4_000_000_000), "its header claims 4000000000 bytes"),
        (header("(" * 9000), "cannot be parsed"),
        (header("{'descr': '|u1'}"), "does not describe an array"),
        (header("__import__('os').getcwd()"), "cannot be parsed"),
        (header(described("'|O'")) + b"x" * 1200, r"'\|O', not plain numbers"),
        (header(described("[('a', '<i4')]")), "not plain numbers"),
        (header(described("'<f16'")), "not plain numbers"),
        (header(described("'<f1'")), "not plain numbers"),
        (header(described(), version=3), "version 3"),
        (b"\x93NUMPY", "does not start as an npy"),
    ],
)
def test_a_header_that_cannot_be_right_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(BadData, match=f"damaged, truncated or not an npy: .*({said})"):
        read_npy(tmp_path / "a.npy")


def test_a_header_of_python_2_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(header(described(shape="(6L, 8L, 8L, 3L)")) + X.tobytes())
    assert np.array_equal(read_npy(tmp_path / "a.npy"), X)


@pytest.mark.parametrize("kind", [">f4", "<f4", ">f8", "<f2"])
def test_floats_of_any_byte_order_are_the_same_images(tmp_path: Path, kind: str) -> None:
    np.savez(tmp_path / "a.npz", x=(X // 64 / 4).astype(kind), y=Y.astype(">i4"))
    found = own_arrays([tmp_path / "a.npz"])[0].images.take(slice(None))
    assert torch.equal(found.x.double(), torch.from_numpy(X // 64 / 4).permute(0, 3, 1, 2))
    assert found.y.tolist() == Y.tolist()


def test_an_array_in_fortran_order_is_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(X), y=Y)
    np.save(tmp_path / "a.npy", np.asfortranarray(X))
    assert np.array_equal(read_npz(tmp_path / "a.npz")[0], X)
    assert np.array_equal(read_npy(tmp_path / "a.npy"), X)


def test_an_encrypted_npz_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_zip(path, x=npy(X), y=npy(Y))
    data = bytearray(path.read_bytes())
    for start, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(start) + flags] |= 1
    path.write_bytes(data)
    with pytest.raises(BadData, match="encrypted"):
        read_npz(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_npz_with_two_arrays_of_one_name_is_named(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.npz", x=npy(X), y=npy(Y))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("x.npy", npy(255 - X))
    with pytest.raises(BadData, match="two arrays 'x'"):
        read_npz(tmp_path / "a.npz")


def test_a_zip_bomb_is_refused_by_what_it_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctta.datasets.zipped._BOMB_FROM", 1 << 20)
    zeros = np.zeros((400, 32, 32, 3), np.uint8)
    np.savez_compressed(tmp_path / "a.npz", x=zeros, y=np.zeros(400, int))
    with pytest.raises(BadData, match=r"would unpack to 1\.2 MB"):
        read_npz(tmp_path / "a.npz")


def test_a_compressed_array_that_memory_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctta.datasets.zipped._physical_memory", lambda: 1000)
    np.savez_compressed(tmp_path / "a.npz", x=X, y=Y)
    with pytest.raises(BadData, match=r"does not fit into memory: save it with np\.savez"):
        read_npz(tmp_path / "a.npz")


def test_an_array_longer_or_shorter_than_its_member_is_named(tmp_path: Path) -> None:
    for data in (npy(X)[:-1], npy(X) + b"x", header(described(shape="(10000, 1000, 1000, 3)")) + b"x"):
        write_zip(tmp_path / "a.npz", x=data, y=npy(Y))
        with pytest.raises(BadData, match="an array claims"):
            read_npz(tmp_path / "a.npz")


def test_a_changed_pixel_of_a_mapped_npz_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctta.datasets.array_files._MAP_FROM", 1)
    path = tmp_path / "a.npz"
    x = np.random.default_rng(1).integers(0, 256, (200, 16, 16, 3), dtype=np.uint8)
    write_zip(path, x=npy(x), y=npy(np.zeros(200, int)))
    assert isinstance(read_npz(path)[0], np.memmap)
    data = bytearray(path.read_bytes())
    data[data.index(x.tobytes()) + 100_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadData, match="the CRC of its images does not match"):
        read_npz(path)


def test_labels_beyond_any_class_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=np.full(6, 2**64 - 1, np.uint64))
    with pytest.raises(BadData, match="got 18446744073709551615"):
        own_arrays([tmp_path / "a.npz"])
