"""CIFAR-10-C and its like: the published layout, read lazily, and the errors for files in other layouts."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from ctta._system.digests import md5_of
from ctta.datasets import cifar_c as stacked
from ctta.datasets.manifest import write_manifest
from ctta.datasets.published import CIFAR10_C
from ctta.errors import BadData, MissingData, ParameterError
from ctta.streams import continual
from ctta.streams.datasets import cifar10_c, cifar100_c, own_c
from nets.nets_data import shared_file

ROWS = 50_000


def sparse(path: Path, rows: int = ROWS, shape: tuple[int, ...] = (32, 32, 3), dtype: str = "uint8") -> np.memmap:
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(rows, *shape))


@pytest.fixture
def folder(tmp_path):
    """Files of the published size, nearly all of it holes: row 0 of each severity shows which one it is."""
    np.save(tmp_path / "labels.npy", np.tile(np.arange(10_000) % 10, 5).astype(np.uint8))
    for name in ("fog", "snow"):
        x = sparse(tmp_path / f"{name}.npy")
        x[::10_000] = np.arange(1, 6, dtype=np.uint8).reshape(5, 1, 1, 1)
        x[40_007, 3, 4] = (10, 20, 30)
        x.flush()
    return tmp_path


def test_severities_are_stacked_by_ten_thousand(folder):
    domains = cifar10_c(folder, ["fog", "snow"], [1, 5])
    assert [(d.name, d.severity, len(d)) for d in domains] == [
        ("fog", 1, 10_000),
        ("fog", 5, 10_000),
        ("snow", 1, 10_000),
        ("snow", 5, 10_000),
    ]
    for domain in domains:
        first = domain.images.take(slice(1))
        assert first.x.shape == (1, 3, 32, 32)
        assert first.x.unique().tolist() == [domain.severity]
    seventh = domains[1].images.take(torch.tensor([7]))
    assert seventh.x[0, :, 3, 4].tolist() == [10, 20, 30]
    assert seventh.y.tolist() == [7]


def test_a_stream_of_them_keeps_one_order_in_all_domains_and_cuts_batches(folder):
    domains = cifar10_c(folder, ["fog", "snow"])
    stream = continual(domains, batch_size=3000, seed=3)
    batches = list(stream)
    assert [(len(b), b.domain, b.severity) for b in batches[:4]] == [(n, "fog", 5) for n in (3000, 3000, 3000, 1000)]
    assert [b.index for b in batches] == list(range(8))
    assert torch.equal(batches[0].y, batches[4].y)
    order = torch.randperm(10_000, generator=torch.Generator().manual_seed(3))
    assert torch.equal(batches[0].y, order[:3000] % 10)
    assert batches[0].x.dtype == torch.float32
    assert stream.domains == ("fog", "snow")
    unshuffled = next(iter(continual(domains, batch_size=4, seed=None)))
    assert unshuffled.y.tolist() == [0, 1, 2, 3]


def test_opening_maps_the_files_instead_of_reading_them(folder):
    tracemalloc.start()
    try:
        domains = cifar10_c(folder, ["fog", "snow"], [1, 2, 3, 4, 5])
        assert len(domains[9].images.take(slice(10, 20))) == 10
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000  # where the two files are 300 MB


def test_a_missing_file_says_what_to_fetch(folder):
    with pytest.raises(MissingData, match=r"frost\.npy is not in .* ctta fetch cifar10-c --to DIR"):
        cifar10_c(folder, ["frost"])
    with pytest.raises(MissingData, match=r"labels\.npy .* ctta fetch cifar100-c"):
        cifar100_c(folder / "nowhere")


def test_a_folder_in_place_of_an_array_names_the_kind_of_file_that_is_needed(folder):
    (folder / "labels.npy").unlink()
    (folder / "labels.npy").mkdir()
    with pytest.raises(MissingData, match=r"labels\.npy is a folder, and an npy file is needed"):
        cifar10_c(folder)


def bad_page(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html>Please confirm</html>")


def bad_empty(path: Path) -> None:
    path.write_bytes(b"")


def bad_truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(10_000)


def bad_tail(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 9)


def bad_pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def bad_pickle(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def bad_zip(path: Path) -> None:
    np.savez(path.with_suffix(""), x=np.zeros(3))
    path.with_suffix(".npz").rename(path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (bad_page, r"fog\.npy is an HTML page \(42 bytes\)"),
        (bad_empty, r"fog\.npy is an empty file"),
        (bad_truncated, r"fog\.npy is damaged, truncated"),
        (bad_tail, r"fog\.npy has 9 bytes behind its array"),
        (bad_pointer, r"fog\.npy is a Git LFS pointer"),
        (bad_pickle, r"fog\.npy is damaged, truncated or not an npy"),
        (bad_zip, r"fog\.npy is (an npz|damaged)"),
        (lambda path: sparse(path, rows=10_000), r"must be uint8 \(50000, 32, 32, 3\); got uint8 \(10000, 32, 32, 3\)"),
        (lambda path: sparse(path, shape=(64, 64, 3)), r"got uint8 \(50000, 64, 64, 3\)"),
        (lambda path: sparse(path, shape=(3, 32, 32)), r"got uint8 \(50000, 3, 32, 32\)"),
        (lambda path: sparse(path, dtype="float32"), r"got float32"),
    ],
)
def test_a_wrong_file_is_named(folder, spoil, said):
    spoil(folder / "fog.npy")
    with pytest.raises(BadData, match=said):
        cifar10_c(folder, ["fog"])


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.full(ROWS, 10, np.uint8), r"classes in 0\.\.9; got 10"),
        (np.full(ROWS, -1, np.int64), r"got -1"),
        (np.zeros(ROWS, np.float32), r"integers; got float32"),
        (np.zeros(10_000, np.uint8), r"50000 labels; got 10000"),
        (np.zeros((ROWS, 1), np.uint8), r"integers"),
    ],
)
def test_wrong_labels_are_named(folder, labels, said):
    np.save(folder / "labels.npy", labels)
    with pytest.raises(BadData, match=said):
        cifar10_c(folder, ["fog"])


def test_an_unknown_severity_is_refused(folder):
    with pytest.raises(ParameterError, match="severities 1, 2, 3, 4, 5"):
        cifar10_c(folder, ["fog"], [6])


def test_nothing_is_called_published_before_its_digest_was_compared(folder):
    assert {d.origin for d in cifar10_c(folder, ["fog"])} == {"unverified"}
    with pytest.raises(BadData, match=r"is not the published file: md5"):
        cifar10_c(folder, ["fog"], verify=True)


def test_published_files_verify(folder, monkeypatch):
    digests = {name: md5_of(folder / f"{name}.npy") for name in ("labels", "fog")}
    monkeypatch.setattr(stacked, "_CIFAR10_C", stacked._Layout(10, digests, ""))
    assert {d.origin for d in cifar10_c(folder, ["fog"], verify=True)} == {"published"}
    with pytest.raises(BadData, match="no digest is known"):
        cifar10_c(folder, ["snow"], verify=True)


def test_generated_files_say_so_and_never_pass_for_published(folder):
    write_manifest(folder, {"severities": [1, 2, 3, 4, 5]})
    assert {d.origin for d in cifar10_c(folder, ["fog"])} == {"generated"}
    with pytest.raises(BadData, match="made by ctta corrupt"):
        cifar10_c(folder, ["fog"], verify=True)


def test_generated_files_may_have_any_size_and_severities(tmp_path):
    write_manifest(tmp_path, {"severities": [3, 5]})
    x = np.arange(2 * 4 * 20 * 18 * 3, dtype=np.uint8).reshape(8, 20, 18, 3)
    np.save(tmp_path / "fog.npy", x)
    np.save(tmp_path / "labels.npy", np.array([300, 1, 2, 3] * 2))
    (domain,) = own_c(tmp_path, ["fog"], [5])
    assert (len(domain), domain.origin) == (4, "generated")
    assert np.array_equal(domain.images.take(slice(0, 4)).x.permute(0, 2, 3, 1).numpy(), x[4:])
    with pytest.raises(ParameterError, match=r"severities 3, 5\. Got 4"):
        own_c(tmp_path, ["fog"], [4])


def test_own_files_need_their_manifest(tmp_path, folder):
    (tmp_path / "other").mkdir()
    with pytest.raises(MissingData, match="ctta corrupt did not make"):
        own_c(tmp_path / "other", ["fog"])
    (folder / "ctta-corrupt.json").write_text(json.dumps({"made_by": "someone"}))
    with pytest.raises(BadData, match="is not a manifest"):
        cifar10_c(folder, ["fog"])


@pytest.mark.shared_data
def test_the_published_digest_of_the_labels_is_that_of_the_test_labels_five_times():
    with np.load(shared_file("cifar10_test.npz")) as data:
        buffer = io.BytesIO()
        np.save(buffer, np.tile(data["y"], 5))
    assert hashlib.md5(buffer.getvalue()).hexdigest() == CIFAR10_C["labels"]
