"""Data by name: image lists choose among the files of ImageNet-C, and become part of a run's specification."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from ctta import nets
from ctta.bench.data import Opened, open_data
from ctta.cli import app
from ctta.datasets import Wanted, get_dataset
from ctta.datasets.manifest import write_manifest
from ctta.errors import MissingData, ParameterError

SYNSETS = [f"n{i:08d}" for i in range(1000)]
FILES = [
    f"{SYNSETS[0]}/ILSVRC2012_val_00000293.JPEG",
    f"{SYNSETS[0]}/ILSVRC2012_val_00002138.JPEG",
    f"{SYNSETS[41]}/ILSVRC2012_val_00000005.JPEG",
    f"{SYNSETS[999]}/ILSVRC2012_val_00000007.JPEG",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fog at severity 5 in the layout of ImageNet-C: 1,000 synsets, four images."""
    folder = tmp_path_factory.mktemp("imagenet-c")
    for synset in SYNSETS:
        (folder / "fog" / "5" / synset).mkdir(parents=True)
    for i, name in enumerate(FILES):
        Image.new("RGB", (224, 224), (60 * i, 0, 0)).save(folder / "fog" / "5" / name)
    return folder


def fog_of(folder: Path, image_list: Path | None = None) -> Opened:
    return open_data(get_dataset("imagenet-c"), Wanted(data=folder, domains=("fog",), image_list=image_list))


def listed(folder: Path, *which: int) -> Path:
    path = folder / f"{''.join(map(str, which))}.txt"
    path.write_text("".join(f"{FILES[i]}\n" for i in which))
    return path


def test_a_list_chooses_the_images_and_its_digest_is_a_fact_of_the_data(tree: Path, tmp_path: Path) -> None:
    chosen = listed(tmp_path, 3, 1)
    opened = fog_of(tree, chosen)
    (domain,) = opened.domains
    assert domain.images.y.tolist() == [999, 0]
    reds = domain.images.take(slice(None)).x[:, 0].float().mean((1, 2)).round()
    assert reds.tolist() == [180, 60]
    assert opened.facts["image_list"] == hashlib.sha256(f"{FILES[3]}\n{FILES[1]}\n".encode()).hexdigest()
    everything = fog_of(tree)
    assert everything.domains[0].images.y.tolist() == [0, 0, 41, 999]
    assert "image_list" not in everything.facts


def test_two_lists_are_two_kinds_of_data_even_where_a_manifest_names_the_files(tree: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "fog").symlink_to(tree / "fog")
    write_manifest(made, {})
    facts = [fog_of(made, chosen).facts for chosen in (listed(tmp_path, 0, 1), listed(tmp_path, 1, 0), None)]
    assert len({json.dumps(f, sort_keys=True) for f in facts}) == 3
    assert len({f["digest"] for f in facts}) == 3


@pytest.mark.parametrize("name", ["digits", "cifar10-c", "imagenet-c", "domainnet-126", "folder"])
def test_a_list_is_refused_where_there_is_nothing_to_choose_from(tmp_path: Path, name: str) -> None:
    arrays = tmp_path / "clean.npz"
    np.savez(arrays, x=np.zeros((2, 224, 224, 3), np.uint8), y=np.arange(2))
    places: list[Path | None] = [None, arrays] if name == "imagenet-c" else [None, arrays, tmp_path]
    for data in places:
        with pytest.raises(ParameterError, match=f"Got {name} with --data {data}. Leave out --image-list"):
            open_data(get_dataset(name), Wanted(data=data, image_list=listed(tmp_path, 0)))


def test_a_list_that_is_not_there_is_named(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"ids\.txt is not in .*RobustBench"):
        fog_of(tree, tmp_path / "ids.txt")


@pytest.mark.slow
def test_a_run_takes_only_the_images_of_its_list(tree: Path, tmp_path: Path) -> None:
    save_file(nets.build("imagenet_efficientnet_lite0").state_dict(), tmp_path / "w.safetensors")
    words = ["run", "source", "imagenet-c", "--model", "imagenet_efficientnet_lite0", "--corruptions", "fog", "--json"]
    places = {"--weights": tmp_path / "w.safetensors", "--data": tree, "--out": tmp_path / "runs"}
    words += [str(word) for pair in places.items() for word in pair]

    def record(*more: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, [*words, "--quiet", *more])
        assert result.exit_code == 0, result.output
        (found,) = json.loads(result.stdout)
        return dict(found)

    chosen = listed(tmp_path, 0, 2, 3)
    part, whole = record("--image-list", str(chosen)), record()
    assert (part["images"], whole["images"]) == (3, 4)
    assert part["spec"]["data"]["image_list"] == hashlib.sha256(chosen.read_bytes()).hexdigest()
