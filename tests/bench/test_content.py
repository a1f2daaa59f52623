"""A run is identified by the content of all its images, hashed once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ctta._system import digests
from ctta.bench.content import digest_of
from ctta.bench.data import open_data
from ctta.bench.jobs import execute
from ctta.datasets import Wanted, get_dataset
from ctta.datasets.arrays import Images
from ctta.errors import BadData
from jobs import change_job, make_job


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that also remembers files that were changed a moment ago."""
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)
    monkeypatch.setenv("CTTA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for number in range(6):
        path = root / "day" / f"class{number % 2}" / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (40 * number, 0, 0)).save(path)
    (root / "classes.txt").write_text("\n".join(f"class{number}" for number in range(10)))
    return root


def digest(folder: Path) -> str:
    return str(open_data(get_dataset("folder"), Wanted(data=folder)).facts["digest"])


def change(path: Path) -> None:
    """Other content of the same size, with the times of the file put back."""
    stat = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    read: list[Path] = []
    usual = digests.sha256_of
    monkeypatch.setattr(digests, "sha256_of", lambda path: read.append(path) or usual(path))
    return read


def test_one_changed_byte_of_any_image_is_another_run(folder: Path, cache: Path) -> None:
    before = digest(folder)
    for path in sorted(folder.rglob("*.bmp")):
        data = path.read_bytes()
        change(path)
        assert digest(folder) != before
        path.write_bytes(data)
        assert digest(folder) == before


def test_a_changed_data_set_is_not_answered_from_an_old_record(folder: Path, tmp_path: Path) -> None:
    job = make_job("source", "folder", "digits_resnet8", data=folder, batch_size=6)
    first = execute(job, tmp_path / "runs")
    for path in folder.rglob("*.bmp"):
        change(path)
    second = execute(change_job(job), tmp_path / "runs")
    assert first.address != second.address and second.spec.data["hashed"] == "every image"


def test_images_are_hashed_once(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch)
    first = digest(folder)
    assert len(read) == 6
    assert digest(folder) == first and len(read) == 6


def test_a_file_that_changed_a_moment_ago_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch)
    assert digest(folder) == digest(folder) and len(read) == 12


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"0" * 64 + b"\nother digest", b"no"])
def test_a_damaged_entry_of_the_cache_is_ignored(folder: Path, cache: Path, damage: bytes) -> None:
    first = digest(folder)
    entries = [path for path in cache.rglob("*") if path.is_file()]
    assert entries
    for entry in entries:
        entry.write_bytes(damage)
    assert digest(folder) == first


def test_a_cache_that_cannot_be_written_costs_only_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CTTA_CACHE", str(tmp_path / "file" / "cache"))
    assert digest(folder) == digest(folder)


def test_an_image_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(digests, "sha256_of", refuse)
    with pytest.raises(BadData, match=r"0\.bmp cannot be read: Permission denied"):
        digest(folder)


def test_the_digest_of_square_colour_images_is_that_of_published_records() -> None:
    x = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    y = np.arange(5)
    found = digest_of(Images(torch.from_numpy(x), torch.from_numpy(y)))
    assert found == hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()


def test_the_same_bytes_in_another_shape_or_type_are_other_images() -> None:
    x = torch.arange(5 * 3 * 64, dtype=torch.uint8).reshape(5, 3, 8, 8)
    y = torch.arange(5)
    shapes = [x, x.reshape(5, 3, 4, 16), x.reshape(5, 3, 16, 4), x.reshape(5, 1, 8, 24), x.view(torch.float16)]
    assert len({digest_of(Images(images, y)) for images in shapes}) == 5


def test_images_are_hashed_a_part_at_a_time_to_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    images = Images(torch.arange(7 * 3 * 64, dtype=torch.uint8).reshape(7, 3, 8, 8), torch.arange(7))
    whole = digest_of(images)
    monkeypatch.setattr("ctta.bench.content._CHUNK", 500)
    assert digest_of(images) == whole
