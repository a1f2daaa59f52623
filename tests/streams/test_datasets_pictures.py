"""Benchmarks of image files: which files belong to which class, and the errors for missing or broken files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from ctta.datasets.array_files import read_npz
from ctta.datasets.by_layout import open_by_layout
from ctta.datasets.manifest import write_manifest
from ctta.datasets.pictures import centre
from ctta.errors import BadData, MissingData
from ctta.streams import continual
from ctta.streams.datasets import domainnet126, image_folder, imagenet_c, own_arrays

SYNSETS = [f"n{i:08d}" for i in range(1000)]


def save(path, size=(224, 224), colour=(0, 0, 0), **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **options)


@pytest.fixture
def imagenet(tmp_path):
    """All 1,000 synset folders, with images in three of them."""
    place = tmp_path / "fog" / "5"
    for synset in SYNSETS:
        (place / synset).mkdir(parents=True)
    save(place / SYNSETS[999] / "ILSVRC2012_val_00000007.JPEG", colour=(200, 0, 0))
    save(place / SYNSETS[0] / "ILSVRC2012_val_00000009.JPEG", colour=(0, 200, 0))
    save(place / SYNSETS[0] / "ILSVRC2012_val_00000003.JPEG", colour=(0, 0, 200))
    save(place / SYNSETS[41] / "ILSVRC2012_val_00000005.JPEG")
    return tmp_path


def test_a_class_of_imagenet_c_is_the_position_of_its_synset(imagenet):
    (domain,) = imagenet_c(imagenet, ["fog"])
    assert (domain.name, domain.severity, domain.origin) == ("fog", 5, "unverified")
    found = domain.images.take(slice(None))
    assert found.y.tolist() == [0, 0, 41, 999]
    assert found.x.shape == (4, 3, 224, 224)
    assert found.x.dtype == torch.uint8
    brightest = found.x.float().mean((2, 3)).argmax(1)
    assert brightest[[0, 1, 3]].tolist() == [2, 1, 0]  # by synset, then by name


def test_a_list_of_images_chooses_and_orders(imagenet):
    chosen = imagenet / "ids.txt"
    lines = [f"{SYNSETS[999]}/ILSVRC2012_val_00000007.JPEG", f"{SYNSETS[0]}/ILSVRC2012_val_00000009.JPEG"]
    chosen.write_text("\n".join(lines) + "\n\n")
    (domain,) = imagenet_c(imagenet, ["fog"], images=chosen)
    assert [path.name for path in domain.images.paths] == [line.split("/")[1] for line in lines]
    assert domain.images.y.tolist() == [999, 0]


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("<html>404</html>", BadData, "lines synset/file; got '<html>404</html>'"),
        ("", BadData, "empty file"),
        ("../../etc/passwd", BadData, "synset/file"),
        ("ILSVRC2012_val_00000007.JPEG", BadData, "synset/file"),
        ("n99999999/ILSVRC2012_val_00000007.JPEG", BadData, "not among the 1000"),
        (f"{SYNSETS[5]}/ILSVRC2012_val_00000007.JPEG", MissingData, "1 of the 1 images"),
        (None, MissingData, r"imagenet_test_image_ids\.txt"),
    ],
)
def test_a_wrong_list_is_named(imagenet, content, error, said):
    if content is not None:
        (imagenet / "ids.txt").write_text(content)
    with pytest.raises(error, match=said):
        imagenet_c(imagenet, ["fog"], images=imagenet / "ids.txt")


def test_folders_may_lie_in_the_folder_of_their_archive(imagenet):
    (imagenet / "weather").mkdir()
    (imagenet / "fog").rename(imagenet / "weather" / "fog")
    assert len(imagenet_c(imagenet, ["fog"])[0]) == 4


def test_a_missing_corruption_names_its_archive(imagenet):
    with pytest.raises(MissingData, match=r"gaussian_noise/5 .* noise\.tar: ctta fetch imagenet-c-noise --to"):
        imagenet_c(imagenet, ["fog", "gaussian_noise"])


def test_a_part_of_the_synsets_needs_their_order(tmp_path):
    save(tmp_path / "fog" / "3" / "n2" / "a.JPEG", (32, 32))
    save(tmp_path / "fog" / "3" / "n1" / "b.JPEG", (32, 32))
    with pytest.raises(BadData, match=r"1000 synset folders.* got 2"):
        imagenet_c(tmp_path, ["fog"], [3])
    write_manifest(tmp_path, {})
    (domain,) = imagenet_c(tmp_path, ["fog"], [3], synsets=["n2", "n1"], side=32)
    assert (domain.images.y.tolist(), domain.origin) == ([0, 1], "generated")


@pytest.mark.parametrize("spoil", ["truncated", "html", "size", "gone"])
def test_a_broken_image_is_named_when_it_is_due(imagenet, spoil):
    (domain,) = imagenet_c(imagenet, ["fog"])
    path = domain.images.paths[2]
    if spoil == "truncated":
        noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        path.write_bytes(path.read_bytes()[:9000])
    elif spoil == "html":
        path.write_text("<html>busy</html>")
    elif spoil == "size":
        save(path, (225, 224))
    else:
        path.unlink()
    stream = iter(continual([domain], batch_size=2, seed=None))
    assert len(next(stream)) == 2
    said = {"size": "must be 224 x 224 pixels; got 225 x 224", "gone": "is not in"}.get(spoil, "cannot be decoded")
    with pytest.raises(MissingData if spoil == "gone" else BadData, match=f"{path.name}.*{said}"):
        next(stream)


@pytest.fixture
def domainnet(tmp_path):
    for i, name in enumerate(("clipart", "painting", "sketch")):
        save(tmp_path / name / "sea_turtle" / f"{name} 1.jpg", (320, 256 + 64 * i))
        save(tmp_path / name / "zebra" / f"{name}_2.jpg", (256, 256))
        (tmp_path / f"{name}_list.txt").write_text(f"{name}/zebra/{name}_2.jpg 125\n{name}/sea_turtle/{name} 1.jpg 0\n")
    return tmp_path


def test_domainnet_follows_its_lists_and_crops_to_224(domainnet):
    domains = domainnet126(domainnet)
    assert [(d.name, d.severity) for d in domains] == [("clipart", 0), ("painting", 0), ("sketch", 0)]
    for domain in domains:
        found = domain.images.take(slice(None))
        assert found.y.tolist() == [125, 0]
        assert found.x.shape == (2, 3, 224, 224)


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ("clipart/zebra/clipart_2.jpg 126", BadData, r"clipart_list\.txt, line 1: .*0\.\.125; got 126"),
        ("clipart/zebra/clipart_2.jpg", BadData, "line 1"),
        ("<html><body>no access</body></html>", BadData, "line 1"),
        ("/etc/passwd 3", BadData, "line 1"),
        ("clipart/../../secret.jpg 3", BadData, "line 1"),
        ("clipart/zebra/clipart_9.jpg 3", MissingData, r"1 of the 1 images of clipart_list\.txt"),
        ("", BadData, "is empty"),
    ],
)
def test_a_wrong_line_of_a_domainnet_list_is_named(domainnet, line, error, said):
    (domainnet / "clipart_list.txt").write_text(line)
    with pytest.raises(error, match=said):
        domainnet126(domainnet)


def test_missing_domainnet_says_where_its_parts_come_from(tmp_path):
    with pytest.raises(MissingData, match=r"clipart_list\.txt .* ai\.bu\.edu/M3SDA"):
        domainnet126(tmp_path)


@pytest.mark.parametrize("size", [(300, 256), (256, 300), (256, 256), (1000, 500), (57, 333), (256, 257)])
def test_the_shorter_side_becomes_256_and_the_central_224_stay(tmp_path, size):
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    longer = int(256 * max(size) / min(size))
    resized = image.resize((256, longer) if size[0] < size[1] else (longer, 256), Image.Resampling.BILINEAR)
    left, top = (round((side - 224) / 2) for side in resized.size)
    expected = np.asarray(resized)[top : top + 224, left : left + 224]
    assert np.array_equal(np.asarray(centre(224, resize=256)(image, tmp_path)), expected)


def test_a_folder_of_domains_and_classes_is_a_stream(tmp_path):
    save(tmp_path / "night" / "car" / "1.png", (40, 30))
    save(tmp_path / "night" / "bus" / "1.PNG", (40, 30))
    save(tmp_path / "dawn" / "car" / "a.jpg", (40, 30))
    (tmp_path / "night" / "bus" / "notes.txt").write_text("no image")
    (tmp_path / ".cache").mkdir()
    domains = image_folder(tmp_path)
    assert [(d.name, d.images.y.tolist()) for d in domains] == [("dawn", [1]), ("night", [0, 1])]
    assert domains[1].images.take(slice(None)).x.shape == (2, 3, 30, 40)
    assert [d.name for d in image_folder(tmp_path, ["night", "dawn"], side=24)] == ["night", "dawn"]
    assert image_folder(tmp_path, side=24)[0].images.take(slice(None)).x.shape == (1, 3, 24, 24)
    assert image_folder(tmp_path, ["dawn"], classes=["car", "bus"])[0].images.y.tolist() == [0]
    stream = continual(domains, batch_size=2)
    assert [(b.domain, len(b)) for b in stream] == [("dawn", 1), ("night", 2)]


def test_a_folder_that_is_no_stream_is_explained(tmp_path):
    with pytest.raises(MissingData, match="is empty"):
        image_folder(tmp_path)
    with pytest.raises(MissingData, match="is not a folder"):
        image_folder(tmp_path / "nowhere")
    save(tmp_path / "day" / "car" / "1.png", (40, 30))
    save(tmp_path / "day" / "car" / "2.png", (41, 30))
    with pytest.raises(BadData, match=r"2\.png is 41 x 30 pixels where others are 40 x 30"):
        image_folder(tmp_path)[0].images.take(slice(None))
    with pytest.raises(BadData, match="car is not one of the 1 classes"):
        image_folder(tmp_path, classes=["bus"])
    with pytest.raises(MissingData, match="The domain dusk is not in"):
        image_folder(tmp_path, ["dusk"])
    (tmp_path / "empty" / "car").mkdir(parents=True)
    with pytest.raises(MissingData, match="domain empty"):
        image_folder(tmp_path)


def test_own_arrays_are_domains_channels_first_or_last(tmp_path):
    last = np.random.default_rng(0).integers(0, 256, (5, 20, 30, 3), dtype=np.uint8)
    np.savez(tmp_path / "monday.npz", x=last, y=np.arange(5))
    np.savez(tmp_path / "tuesday.npz", x=last.transpose(0, 3, 1, 2).astype(np.float32) / 255, y=np.arange(5))
    monday, tuesday = own_arrays([tmp_path / "monday.npz", tmp_path / "tuesday.npz"], classes=5)
    assert (monday.name, tuesday.name) == ("monday", "tuesday")
    assert torch.equal(monday.images.take(slice(None)).floats(), tuesday.images.take(slice(None)).floats())


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((2, 8, 8, 3), np.uint8)}, "no array 'y'. It holds: x"),
        ({"x": np.zeros((2, 8, 8, 3), np.uint8), "y": np.array([0, 3])}, r"0\.\.2; got 3"),
        ({"x": np.zeros((2, 8, 8, 3), np.uint8), "y": np.arange(3)}, "must be 2 integers"),
        ({"x": np.zeros((2, 8, 8, 3), np.int64), "y": np.arange(2)}, "uint8 or floats"),
        ({"x": np.full((2, 8, 8, 3), 2.0), "y": np.arange(2)}, r"outside \[0, 1\]"),
        ({"x": np.full((2, 8, 8, 3), np.nan), "y": np.arange(2)}, r"outside \[0, 1\]"),
        ({"x": np.zeros((2, 8, 8, 4), np.uint8), "y": np.arange(2)}, "1 or 3 channels"),
        ({"x": np.zeros((8, 8, 3), np.uint8), "y": np.arange(8)}, r"\(N, H, W, 3\)"),
        ({"x": np.array(["a"], dtype=object), "y": np.arange(1)}, "damaged, truncated or not an npz"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, said):
    np.savez(tmp_path / "day.npz", **arrays)
    with pytest.raises(BadData, match=said):
        own_arrays([tmp_path / "day.npz"], classes=3)


def test_a_damaged_npz_is_named(tmp_path):
    np.savez(tmp_path / "day.npz", x=np.zeros((20, 8, 8, 3), np.uint8), y=np.arange(20))
    path = tmp_path / "day.npz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadData, match=r"day\.npz is damaged"):
        own_arrays([path])
    with pytest.raises(MissingData, match=r"night\.npz is not in .*np\.savez"):
        own_arrays([tmp_path / "night.npz"])


def test_a_large_npz_is_mapped_and_a_small_one_read(tmp_path, monkeypatch):
    x = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", y=np.arange(20) % 4, x=x)
    small = own_arrays([tmp_path / "mine.npz"])[0]
    monkeypatch.setattr("ctta.datasets.array_files._MAP_FROM", 1)
    found, _ = read_npz(tmp_path / "mine.npz")
    assert isinstance(found, np.memmap)
    large = own_arrays([tmp_path / "mine.npz"])[0]
    for domain in (small, large):
        assert torch.equal(domain.images.take(slice(3, 7)).x, torch.from_numpy(x[3:7]).permute(0, 3, 1, 2))


def test_a_class_has_one_number_whichever_domains_are_read(tmp_path):
    for domain, label in (("a", "cat"), ("b", "dog")):
        (tmp_path / domain / label).mkdir(parents=True)
        Image.new("RGB", (16, 16)).save(tmp_path / domain / label / "0.png")
    (dogs,) = image_folder(tmp_path, ["b"])
    assert dogs.images.y.tolist() == [1]


def test_a_class_has_one_number_whichever_corruptions_and_severities_are_read(tmp_path):
    for part, label in (("fog/5", "cat"), ("snow/5", "dog"), ("snow/1", "bee")):
        save(tmp_path / part / label / "0.png", (16, 16))
    for wanted, labels in ((["snow"], [[2]]), (["fog", "snow"], [[1], [2]])):
        assert [domain.images.y.tolist() for domain in open_by_layout(tmp_path, wanted, [5])] == labels


def test_hidden_files_and_folders_are_neither_classes_nor_images_nor_domains(tmp_path):
    for name in ("cat/0.png", "dog/deep/dog/0.png", ".thumbs/0.png", "dog/.thumbs/0.png"):
        save(tmp_path / "made" / "fog" / "5" / name, (16, 16))
    (tmp_path / "made" / "fog" / "5" / "cat" / "._0.png").write_bytes(b"attributes of a file, which macOS writes")
    (domain,) = open_by_layout(tmp_path / "made", None, [5])
    assert domain.class_names == ("cat", "dog") and domain.images.y.tolist() == [0, 1]
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 16, 16, 3), np.uint8), y=[0, 1])
    (tmp_path / "._a.npz").write_bytes(b"attributes of a file, which macOS writes")
    assert [domain.name for domain in open_by_layout(tmp_path, None, [5])] == ["a"]


def test_a_list_of_classes_may_begin_with_a_byte_order_mark(tmp_path):
    for label in ("cat", "dog"):
        save(tmp_path / "a" / label / "0.png", (16, 16))
    (tmp_path / "classes.txt").write_bytes(b"\xef\xbb\xbfdog\ncat\n")
    (domain,) = image_folder(tmp_path)
    assert domain.class_names == ("dog", "cat") and domain.images.y.tolist() == [1, 0]
