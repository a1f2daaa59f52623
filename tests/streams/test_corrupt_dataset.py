"""A "-C" version of your own images: the published layouts, resumed after any interruption."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from PIL import Image

from ctta.corruptions import constants, corrupt, frost_source
from ctta.datasets.write.arrays import ArraySource
from ctta.datasets.write.corrupt_dataset import Recipe, corrupt_dataset
from ctta.datasets.write.folders import FolderSource
from ctta.errors import BadData, ConcurrentUse, MissingData, ParameterError, UnknownStream
from ctta.streams.datasets import cifar10_c, imagenet_c, own_c

RECIPE = Recipe(("gaussian_noise", "contrast"), (1, 5), seed=7)


class Stopped(Exception):
    """Simulates an interruption."""


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def array(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x=pixels(6, 20, 24, 3), y=np.array([0, 1, 2, 0, 1, 2]))
    return path


@pytest.fixture
def folder(tmp_path):
    sizes = [("n1/a.JPEG", (40, 32)), ("n1/b.png", (40, 32)), ("n2/c.jpg", (33, 33)), ("n2/deep/d.png", (40, 32))]
    for seed, (name, size) in enumerate(sizes):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(*size[::-1], 3, seed=seed)).save(path)
    (tmp_path / "images" / "readme.txt").write_text("not an image")
    return tmp_path / "images"


def source_of(given):
    return ArraySource(given) if given.suffix == ".npz" else FolderSource(given, file_format="png")


def snapshot(out):
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def test_an_array_becomes_stacked_severities_and_labels(array, tmp_path):
    made, kept = corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)
    assert (made, kept) == (["gaussian_noise.npy", "contrast.npy"], [])
    with np.load(array) as data:
        x = torch.from_numpy(data["x"]).permute(0, 3, 1, 2)
    for name in RECIPE.corruptions:
        found = np.load(tmp_path / "out" / f"{name}.npy")
        assert (found.shape, found.dtype) == ((12, 20, 24, 3), np.uint8)
        for i, severity in enumerate(RECIPE.severities):
            expected = corrupt(x, name, severity=severity, seed=7).permute(0, 2, 3, 1).numpy()
            assert np.array_equal(found[6 * i : 6 * i + 6], expected)
    labels = np.load(tmp_path / "out" / "labels.npy")
    assert labels.dtype == np.uint8
    assert labels.tolist() == [0, 1, 2, 0, 1, 2] * 2


def test_what_was_made_is_read_back_as_generated(array, tmp_path):
    corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)
    (domain,) = own_c(tmp_path / "out", ["contrast"], [5])
    assert (domain.origin, len(domain), domain.images.y.tolist()) == ("generated", 6, [0, 1, 2, 0, 1, 2])
    with pytest.raises(BadData, match="made by ctta corrupt"):
        cifar10_c(tmp_path / "out", ["contrast"], verify=True)


def test_the_manifest_says_how_it_was_made(array, tmp_path):
    corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)
    note = json.loads((tmp_path / "out" / "ctta-corrupt.json").read_text())
    assert note["input"] == {
        "name": "mine.npz",
        "sha256": hashlib.sha256(array.read_bytes()).hexdigest(),
        "images": 6,
    }
    assert (note["seed"], note["scale"], note["side"], note["severities"]) == (7, None, 20, [1, 5])
    assert note["constants"]["contrast"]["5"] == constants("contrast", severity=5, side=20)
    assert note["frost"] == frost_source()
    assert set(note["versions"]) == {"ctta", "numpy", "pillow", "torch"}
    part = (tmp_path / "out" / "contrast.npy").read_bytes()
    assert note["parts"]["contrast.npy"] == hashlib.sha256(part).hexdigest()


def test_an_npy_with_labels_gives_the_same_as_an_npz(array, tmp_path):
    with np.load(array) as data:
        np.save(tmp_path / "x.npy", data["x"])
        np.save(tmp_path / "floats.npy", (data["x"] / 255).astype(np.float32))
        np.save(tmp_path / "y.npy", data["y"])
    for source in (
        ArraySource(array),
        ArraySource(tmp_path / "x.npy", tmp_path / "y.npy"),
        ArraySource(tmp_path / "floats.npy", tmp_path / "y.npy"),
    ):
        corrupt_dataset(source, tmp_path / source.path.stem, RECIPE)
    for name in ("contrast.npy", "gaussian_noise.npy", "labels.npy"):
        contents = {(tmp_path / folder / name).read_bytes() for folder in ("mine", "x", "floats")}
        assert len(contents) == 1
    with pytest.raises(ParameterError, match="--labels"):
        ArraySource(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("kind", "after", "finished"),
    [("array", 1, 0), ("array", 8, 0), ("array", 13, 1), ("folder", 1, 0), ("folder", 8, 2), ("folder", 13, 3)],
)
def test_an_interrupted_run_goes_on_and_ends_the_same(request, tmp_path, kind, after, finished):
    def source():
        return source_of(request.getfixturevalue(kind))

    corrupt_dataset(source(), tmp_path / "straight", RECIPE)

    def stop(_part, done, _total):
        if done > after:
            raise Stopped

    with pytest.raises(Stopped):
        corrupt_dataset(source(), tmp_path / "out", RECIPE, progress=stop)
    made, kept = corrupt_dataset(source(), tmp_path / "out", RECIPE)
    assert len(kept) == finished
    assert len(made) == (2 if kind == "array" else 4) - finished
    assert snapshot(tmp_path / "out") == snapshot(tmp_path / "straight")
    assert corrupt_dataset(source(), tmp_path / "out", RECIPE)[0] == []


def test_a_part_that_changed_is_made_again(array, tmp_path):
    corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)
    before = snapshot(tmp_path / "out")
    path = tmp_path / "out" / "contrast.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    made, kept = corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)
    assert (made, kept) == (["contrast.npy"], ["gaussian_noise.npy"])
    assert snapshot(tmp_path / "out") == before


def test_more_corruptions_join_what_is_there(array, tmp_path):
    corrupt_dataset(ArraySource(array), tmp_path / "out", Recipe(("contrast",), (1, 5), seed=7))
    made, kept = corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)
    assert (made, kept) == (["gaussian_noise.npy"], ["contrast.npy"])
    note = json.loads((tmp_path / "out" / "ctta-corrupt.json").read_text())
    assert note["corruptions"] == ["contrast", "gaussian_noise"]
    assert set(note["parts"]) == {"contrast.npy", "gaussian_noise.npy"}


def test_another_seed_or_input_needs_another_folder(array, tmp_path):
    corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)
    with pytest.raises(ParameterError, match="another seed"):
        corrupt_dataset(ArraySource(array), tmp_path / "out", Recipe(RECIPE.corruptions, (1, 5), seed=8))
    with pytest.raises(ParameterError, match="another severities"):
        corrupt_dataset(ArraySource(array), tmp_path / "out", Recipe(RECIPE.corruptions, (1,), seed=7))
    np.savez(array, x=pixels(6, 20, 24, 3, seed=5), y=np.arange(6))
    with pytest.raises(ParameterError, match="another input, labels_sha256"):
        corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE)


def test_a_folder_with_other_files_is_left_alone(array, tmp_path):
    out = tmp_path / "CIFAR-10-C"
    out.mkdir()
    (out / "fog.npy").write_text("published")
    with pytest.raises(BadData, match="is not empty and was not made by ctta corrupt"):
        corrupt_dataset(ArraySource(array), out, RECIPE)
    assert [path.name for path in out.iterdir()] == ["fog.npy"]


def test_a_folder_keeps_its_subfolders_under_corruption_and_severity(folder, tmp_path):
    made, _ = corrupt_dataset(FolderSource(folder, file_format="png"), tmp_path / "out", RECIPE)
    assert made == ["gaussian_noise/1", "gaussian_noise/5", "contrast/1", "contrast/5"]
    names = {path for path in snapshot(tmp_path / "out") if path.startswith("contrast/5")}
    assert names == {f"contrast/5/{name}" for name in ("n1/a.png", "n1/b.png", "n2/c.png", "n2/deep/d.png")}
    for name, source in (("n1/b.png", "n1/b.png"), ("n2/c.png", "n2/c.jpg")):
        x = torch.from_numpy(np.array(Image.open(folder / source).convert("RGB"))).permute(2, 0, 1)[None]
        expected = corrupt(x, "gaussian_noise", severity=5, seed=7)[0].permute(1, 2, 0).numpy()
        with Image.open(tmp_path / "out" / "gaussian_noise" / "5" / name) as found:
            assert np.array_equal(np.asarray(found), expected)


def test_jpeg_files_keep_their_names_and_have_quality_85(folder, tmp_path):
    corrupt_dataset(FolderSource(folder), tmp_path / "out", Recipe(("contrast",), (3,)))
    assert sorted(snapshot(tmp_path / "out" / "contrast" / "3")) == [
        "n1/a.JPEG",
        "n1/b.jpg",
        "n2/c.jpg",
        "n2/deep/d.jpg",
    ]
    Image.new("RGB", (16, 16)).save(tmp_path / "reference.jpg", quality=85)
    with (
        Image.open(tmp_path / "reference.jpg") as reference,
        Image.open(tmp_path / "out" / "contrast" / "3" / "n1" / "a.JPEG") as found,
    ):
        assert found.quantization == reference.quantization
        assert found.size == (40, 32)


def test_a_cropped_folder_reads_as_imagenet_c(folder, tmp_path):
    corrupt_dataset(FolderSource(folder, side=28), tmp_path / "out", Recipe(("contrast",), (5,)))
    (domain,) = imagenet_c(tmp_path / "out", ["contrast"], synsets=["n1", "n2"], side=28)
    assert domain.origin == "generated"
    assert domain.images.take(slice(None)).x.shape == (3, 3, 28, 28)
    assert domain.images.y.tolist() == [0, 0, 1]


def test_images_that_cannot_be_corrupted_are_named(folder, tmp_path, array):
    Image.new("RGB", (15, 40)).save(folder / "n2" / "e.png")
    with pytest.raises(BadData, match=r"e\.png is 15 x 40 pixels; corruptions need 16"):
        corrupt_dataset(FolderSource(folder), tmp_path / "out", Recipe(("contrast",), (5,)))
    (folder / "n2" / "e.png").write_text("<html>")
    with pytest.raises(BadData, match=r"e\.png cannot be decoded"):
        corrupt_dataset(FolderSource(folder), tmp_path / "out2", Recipe(("contrast",), (5,)))
    (folder / "n2" / "e.png").rename(folder / "n2" / "c.png")
    with pytest.raises(BadData, match=r"would both become n2/c\.jpg"):
        FolderSource(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingData, match="holds no images"):
        FolderSource(tmp_path / "empty")
    with pytest.raises(MissingData, match="is not there"):
        FolderSource(tmp_path / "nowhere")
    np.savez(array, x=np.full((2, 20, 20, 3), 3.0), y=np.arange(2))
    with pytest.raises(BadData, match=r"outside \[0, 1\]"):
        ArraySource(array)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"corruptions": ("fogg",)}, UnknownStream),
        ({"severities": (6,)}, ParameterError),
        ({"severities": ()}, ParameterError),
        ({"corruptions": ("fog", "fog")}, ParameterError),
        ({"scale": "mars"}, ParameterError),
    ],
)
def test_a_recipe_is_checked_before_work_begins(arguments, error):
    with pytest.raises(error):
        Recipe(**arguments)


def test_progress_counts_every_image_of_every_part(array, tmp_path):
    seen = []
    corrupt_dataset(ArraySource(array), tmp_path / "out", RECIPE, progress=lambda *given: seen.append(given))
    assert seen[-1] == ("contrast.npy", 24, 24)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_grey_arrays_are_corrupted_and_read_back(tmp_path):
    np.savez(tmp_path / "grey.npz", x=pixels(4, 28, 28, 1), y=np.arange(4))
    corrupt_dataset(ArraySource(tmp_path / "grey.npz"), tmp_path / "out", RECIPE)
    (domain,) = own_c(tmp_path / "out", ["contrast"], [5])
    clean = torch.from_numpy(np.load(tmp_path / "grey.npz")["x"]).permute(0, 3, 1, 2)
    assert torch.equal(domain.images.take(slice(None)).x, corrupt(clean, "contrast", severity=5, seed=7))


@pytest.mark.parametrize("kind", ["array", "folder"])
def test_an_output_folder_has_one_writer_at_a_time(request, tmp_path, kind):
    source, refused = source_of(request.getfixturevalue(kind)), []

    def write_too(*_):
        with pytest.raises(ConcurrentUse, match=r"Another process is writing to .*out"):
            corrupt_dataset(source, tmp_path / "out", RECIPE)
        refused.append(True)

    corrupt_dataset(source, tmp_path / "alone", RECIPE)
    corrupt_dataset(source, tmp_path / "out", RECIPE, progress=write_too)
    assert refused and snapshot(tmp_path / "out") == snapshot(tmp_path / "alone")


def test_a_part_that_lost_a_file_is_made_again(folder, tmp_path):
    corrupt_dataset(FolderSource(folder), tmp_path / "out", RECIPE)
    before = snapshot(tmp_path / "out")
    (tmp_path / "out" / "contrast" / "5" / "n2" / "c.jpg").unlink()
    assert corrupt_dataset(FolderSource(folder), tmp_path / "out", RECIPE)[0] == ["contrast/5"]
    assert snapshot(tmp_path / "out") == before


def test_an_incomplete_part_has_no_digest(folder, array, tmp_path):
    (tmp_path / "out" / "fog" / "5").mkdir(parents=True)
    with pytest.raises(BadData, match=r"a\.JPEG cannot be read"):
        FolderSource(folder).digest("fog/5", tmp_path / "out")
    with pytest.raises(BadData, match=r"fog\.npy cannot be read"):
        ArraySource(array).digest("fog.npy", tmp_path / "out")


def test_hidden_files_and_folders_are_not_corrupted(folder, tmp_path):
    (folder / "n1" / "._a.png").write_bytes(b"attributes of a file, which macOS writes")
    (folder / ".thumbs").mkdir()
    Image.new("RGB", (40, 32)).save(folder / ".thumbs" / "a.png")
    corrupt_dataset(FolderSource(folder), tmp_path / "out", Recipe(("contrast",), (5,)))
    assert sorted(snapshot(tmp_path / "out" / "contrast" / "5")) == [
        "n1/a.JPEG",
        "n1/b.jpg",
        "n2/c.jpg",
        "n2/deep/d.jpg",
    ]


def test_the_output_must_be_outside_the_input(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for given in (folder, folder.relative_to(folder)):
        with pytest.raises(ParameterError, match="The output must be outside the input"):
            corrupt_dataset(FolderSource(given), folder / "n1" / "out", RECIPE)
    assert not (folder / "n1" / "out").exists()


def test_the_working_folder_is_recorded_by_its_name(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert FolderSource(folder.relative_to(folder)).describe()["input"]["name"] == "images"
