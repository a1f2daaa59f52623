"""ImageNet-R, -A, -Sketch, -V2 and -C-bar, CIFAR-10.1 and PACS in their published layouts, as tiny fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from ctta import fetch as fetching
from ctta.bench.data import open_data
from ctta.bench.jobs import execute
from ctta.classifier import Classifier
from ctta.datasets import Wanted, get_dataset
from ctta.datasets.domain import Domain
from ctta.datasets.imagenet_synsets import synsets
from ctta.datasets.imagenet_variants import part_classes
from ctta.errors import BadData, MissingData, ModelError, ParameterError
from ctta.nets.class_subset import with_classes
from ctta.streams.datasets import (
    cifar10_1,
    imagenet_a,
    imagenet_c_bar,
    imagenet_r,
    imagenet_sketch,
    imagenet_v2,
    pacs,
)
from jobs import make_job


def save(path: Path, colour: int = 0, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, colour, colour)).save(path)


def make_folders(place: Path, names: list[str]) -> None:
    for name in names:
        (place / name).mkdir(parents=True)


def part_of(name: str) -> list[str]:
    """The synsets of ImageNet-R or -A."""
    return [synsets()[number] for number in part_classes()[name]]


PART = part_of("imagenet-r")


def make_part(place: Path, name: str) -> Path:
    """Three images of three classes, and the empty folders of the others."""
    part = part_of(name)
    make_folders(place / name, part)
    for number, colour in ((0, 10), (3, 90), (199, 200)):
        save(place / name / part[number] / f"picture_{number}.jpg", colour)
    return place


@pytest.fixture
def renditions(tmp_path: Path) -> Path:
    return make_part(tmp_path, "imagenet-r")


def test_the_synsets_are_the_thousand_of_imagenet_in_order() -> None:
    names = synsets()
    assert len(set(names)) == 1000 and list(names) == sorted(names)
    assert all(len(name) == 9 and name[0] == "n" and name[1:].isdigit() for name in names)
    # tench, goldfinch, tabby, toilet tissue
    known = {0: "n01440764", 11: "n01531178", 281: "n02123045", 999: "n15075141"}
    assert {number: names[number] for number in known} == known


@pytest.mark.parametrize(
    ("name", "read", "first"),
    [("imagenet-r", imagenet_r, (1, 2, 4, 6, 8)), ("imagenet-a", imagenet_a, (6, 11, 13, 15, 17))],
)
def test_labels_count_the_classes_of_the_data_and_name_those_of_the_model(
    name: str, read: Callable[[Path], list[Domain]], first: tuple[int, ...], tmp_path: Path
) -> None:
    place = make_part(tmp_path, name)
    (domain,) = read(place)
    assert domain.images.y.tolist() == [0, 3, 199] and domain.classes == 200
    assert domain.model_classes is not None and domain.model_classes[:5] == first
    assert domain.images.take(slice(None)).x.shape == (3, 3, 224, 224)
    assert domain.images.take(slice(1, 2)).x.float().mean() == pytest.approx(90, abs=2)
    (again,) = read(place / name)  # the folder itself
    assert (again.name, again.model_classes) == (name, domain.model_classes)


def test_the_classes_of_imagenet_r_and_a_are_the_published_ones(renditions: Path, tmp_path: Path) -> None:
    parts = part_classes()
    assert all(len(set(classes)) == 200 and list(classes) == sorted(classes) for classes in parts.values())
    # Goldfish and robin, each in one of the two.
    assert synsets()[1] == "n01443537" and 1 in parts["imagenet-r"] and 1 not in parts["imagenet-a"]
    assert synsets()[15] == "n01558993" and 15 in parts["imagenet-a"] and 15 not in parts["imagenet-r"]
    with pytest.raises(BadData, match="but not those of imagenet-a: they are those of imagenet-r"):
        imagenet_a(renditions / "imagenet-r")
    make_folders(tmp_path / "other", list(synsets()[::5]))
    with pytest.raises(BadData, match=r"200 classes of ImageNet, but not those of imagenet-r\.$"):
        imagenet_r(tmp_path / "other")


def test_a_part_of_the_classes_would_be_another_benchmark(renditions: Path, tmp_path: Path) -> None:
    (renditions / "imagenet-r" / PART[5]).rmdir()
    with pytest.raises(BadData, match="must hold 200 synset folders; got 199"):
        imagenet_r(renditions)
    (renditions / "imagenet-r" / "n00000000").mkdir()
    with pytest.raises(BadData, match="n00000000, which is not one of the 1000"):
        imagenet_r(renditions)
    with pytest.raises(MissingData, match=r"hendrycks/imagenet-r\.tar"):
        imagenet_r(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingData, match="no folders named after synsets"):
        imagenet_a(tmp_path / "empty")


class Means(nn.Module):
    """A network of 1,000 classes on the mean of each channel."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 1000, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("bias", [True, False])
def test_a_model_with_some_classes_gives_the_logits_of_those(bias: bool) -> None:
    model, x = Classifier(Means(bias)), torch.rand(4, 3, 16, 16)
    classes = [999, 0, 41]
    part = with_classes(model, classes)
    assert torch.allclose(part(x), model(x)[:, classes]) and part.num_classes == 3
    logits, features = part.with_features(x)
    assert torch.allclose(features, x.mean((2, 3))) and torch.equal(logits, part(x))
    assert model.num_classes == 1000  # the user's model stays as it is
    assert with_classes(part, [5, 6, 7]) is part  # a model of these classes already


def test_classes_that_a_model_does_not_have_are_refused() -> None:
    with pytest.raises(ParameterError, match="this one has 1000"):
        with_classes(Classifier(Means()), [0, 1000])
    normed = Means()
    nn.utils.parametrizations.weight_norm(normed.fc)
    with pytest.raises(ModelError, match="plain linear head"):
        with_classes(Classifier(normed, head="fc"), [0, 1])


def test_a_run_on_imagenet_r_uses_the_logits_of_its_classes(
    renditions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(3, 1000)\n"
        "        nn.init.zeros_(self.fc.weight)\n"
        "        with torch.no_grad():\n"
        "            self.fc.bias.zero_()\n"
        "            self.fc.bias[6] = 1\n"  # the fourth synset folder
        "            self.fc.bias[5] = 2\n"  # not a class of the data
        "    def forward(self, x):\n"
        "        return self.fc(x.mean((2, 3)))\n\n"
        "def build():\n    return Net()\n"
    )
    monkeypatch.chdir(tmp_path)
    record = execute(make_job("source", "imagenet-r", "net.py:build", data=renditions), tmp_path / "runs")
    assert record.counts["imagenet-r"].images == 3 and record.counts["imagenet-r"].wrong == 2
    assert len(str(record.spec.data["model_classes"])) == 64


def test_imagenet_sketch_has_all_classes(tmp_path: Path) -> None:
    make_folders(tmp_path / "sketch", list(synsets()))
    save(tmp_path / "sketch" / synsets()[7] / "sketch_0.JPEG")
    (domain,) = imagenet_sketch(tmp_path)
    assert domain.images.y.tolist() == [7] and domain.model_classes is None
    (tmp_path / "sketch" / synsets()[0]).rmdir()
    with pytest.raises(BadData, match="1000 synset folders; got 999"):
        imagenet_sketch(tmp_path / "sketch")


def test_classes_of_imagenet_v2_are_numbers_and_not_in_alphabetical_order(tmp_path: Path) -> None:
    for sample in ("matched-frequency", "top-images"):
        place = tmp_path / f"imagenetv2-{sample}-format-val"
        make_folders(place, [str(number) for number in range(1000)])
        for number in (2, 10, 999):
            save(place / str(number) / "a.jpeg")
    first, last = imagenet_v2(tmp_path)
    assert (first.name, last.name) == ("matched-frequency", "top-images")
    assert first.images.y.tolist() == [2, 10, 999]
    assert [d.name for d in imagenet_v2(tmp_path, "top-images")] == ["top-images"]
    with pytest.raises(MissingData, match=r"threshold0\.7 is not in .*: matched-frequency, top-images"):
        imagenet_v2(tmp_path, ["threshold0.7"])
    with pytest.raises(MissingData, match="no samples of ImageNet-V2"):
        imagenet_v2(tmp_path / "nowhere")
    (tmp_path / "imagenetv2-top-images-format-val" / "5").rmdir()
    with pytest.raises(BadData, match="folders 0 to 999"):
        imagenet_v2(tmp_path)


def test_a_severity_of_imagenet_c_bar_is_the_place_of_its_strength(tmp_path: Path) -> None:
    root = tmp_path / "ImageNet-C-Bar"
    for name, strengths in (("sparkles", ("10.00", "2.00", "3.50", "4.00", "9.00")), ("perlin_noise", ("1.00",))):
        for strength in strengths:
            (root / name / strength).mkdir(parents=True)
    for colour, strength in ((50, "2.00"), (250, "10.00")):
        make_folders(root / "sparkles" / strength, list(synsets()))
        save(root / "sparkles" / strength / synsets()[3] / "ILSVRC2012_val_1.JPEG", colour, (224, 224))
    weak, strong = imagenet_c_bar(tmp_path, "sparkles", (1, 5))
    assert [(d.name, d.severity, d.images.y.tolist()) for d in (weak, strong)] == [
        ("sparkles", 1, [3]),
        ("sparkles", 5, [3]),
    ]
    assert weak.images.take(slice(1)).x.max() < 60 < 240 < strong.images.take(slice(1)).x.min()
    with pytest.raises(BadData, match="five folders named after strengths"):
        imagenet_c_bar(tmp_path, "perlin_noise")
    with pytest.raises(MissingData, match="fog is not in"):
        imagenet_c_bar(tmp_path, "fog")
    with pytest.raises(ParameterError, match="severities 1 to 5"):
        imagenet_c_bar(tmp_path, "sparkles", 6)


def test_cifar10_1_has_two_versions(tmp_path: Path) -> None:
    for version, count in (("v4", 2021), ("v6", 2000)):
        x = np.zeros((count, 32, 32, 3), dtype=np.uint8)
        x[5] = 7
        np.save(tmp_path / f"cifar10.1_{version}_data.npy", x)
        np.save(tmp_path / f"cifar10.1_{version}_labels.npy", (np.arange(count) % 10).astype(np.int32))
    (six,) = cifar10_1(tmp_path)
    assert (six.name, len(six)) == ("v6", 2000) and six.images.y[:12].tolist() == [*range(10), 0, 1]
    assert six.images.take(slice(5, 6)).x.unique().tolist() == [7]
    assert [(d.name, len(d)) for d in cifar10_1(tmp_path, ("v4", "v6"))] == [("v4", 2021), ("v6", 2000)]
    opened = open_data(get_dataset("cifar10.1"), Wanted(data=tmp_path))
    assert opened.classes == 10 and opened.facts["name"] == "cifar10.1"
    with pytest.raises(ParameterError, match="v4 and v6"):
        cifar10_1(tmp_path, "v5")
    np.save(tmp_path / "cifar10.1_v6_data.npy", np.zeros((9, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(BadData, match=r"must be uint8 \(2000, 32, 32, 3\)"):
        cifar10_1(tmp_path)
    with pytest.raises(MissingData, match="modestyachts"):
        cifar10_1(tmp_path / "nowhere")


def test_pacs_goes_from_photo_to_three_other_domains(tmp_path: Path) -> None:
    for number, name in enumerate(("photo", "art_painting", "cartoon", "sketch")):
        save(tmp_path / "kfold" / name / "horse" / "pic_001.jpg", 60 * number, (227, 227))
    save(tmp_path / "kfold" / "sketch" / "dog" / "2.png", 5, (227, 227))
    domains = pacs(tmp_path)
    assert [(d.name, d.images.y.tolist()) for d in domains] == [
        ("art_painting", [4]),
        ("cartoon", [4]),
        ("sketch", [0, 4]),
    ]
    assert domains[0].classes == 7 and domains[0].images.take(slice(1)).x.shape == (1, 3, 224, 224)
    assert [d.name for d in open_data(get_dataset("pacs"), Wanted(data=tmp_path, domains=("photo",))).domains] == [
        "photo"
    ]
    small = open_data(get_dataset("pacs"), Wanted(data=tmp_path, side=64))
    assert small.domains[0].images.take(slice(1)).x.shape == (1, 3, 64, 64) and small.facts["side"] == 64
    (tmp_path / "kfold" / "cartoon" / "unicorn").mkdir()
    with pytest.raises(BadData, match="unicorn is not one of the 7 classes"):
        pacs(tmp_path)
    with pytest.raises(MissingData, match=r"domaingeneralization\.github\.io"):
        pacs(tmp_path / "nowhere")


def test_a_dataset_of_one_domain_has_no_others(renditions: Path) -> None:
    with pytest.raises(ParameterError, match="The only domain of this dataset is imagenet-r"):
        open_data(get_dataset("imagenet-r"), Wanted(data=renditions, domains=("fog",)))


@pytest.mark.parametrize("name", fetching.BY_HAND)
def test_what_has_no_known_digest_is_explained_and_not_downloaded(name: str, tmp_path: Path) -> None:
    (plan,) = fetching.plan(name, tmp_path)
    assert plan["source"].startswith("https://") and str(tmp_path) in plan["by_hand"] and plan["md5"] is None
    with pytest.raises(MissingData, match=f"--data {tmp_path}"):
        fetching.fetch(name, tmp_path)
    with pytest.raises(ParameterError, match="no published digest"):
        fetching.check(name, tmp_path)
    assert get_dataset(name).needs
