"""Training the source model of PACS: ImageNet's convolutions, a new head, and batch norms that fit the photographs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ctta import nets
from ctta.datasets.pacs import CLASSES
from ctta.errors import ParameterError
from ctta.nets.train_pacs import HOW, train_pacs

ONE_PASS = replace(HOW, passes=1, batch_size=8, padding=2)


def trained(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in weights.items() if "num_batches_tracked" not in name}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PACS with three photographs per class, weights of ImageNet, and the model trained from both."""
    root = tmp_path_factory.mktemp("pacs")
    for number, name in enumerate(CLASSES):
        (root / "photo" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (40, 36), (30 * number, 80 * i, 100)).save(root / "photo" / name / f"{i}.png")
    torch.manual_seed(0)
    save_file(nets.build("imagenet_efficientnet_lite0").state_dict(), root / "imagenet.safetensors")
    (root / "error").write_text(
        str(train_pacs(root, root / "imagenet.safetensors", root / "out.safetensors", ONE_PASS, side=32))
    )
    return root


def test_only_the_head_and_the_batch_norms_change(folder: Path) -> None:
    before = load_file(folder / "imagenet.safetensors")
    after = nets.load("pacs_efficientnet_lite0", folder / "out.safetensors").state_dict()
    assert after["_fc.weight"].shape == (7, before["_fc.weight"].shape[1])
    convolutions = [name for name, value in after.items() if value.dim() == 4]
    norms = [name for name in trained(after) if after[name].dim() == 1 and "_fc" not in name]
    assert len(convolutions) + len(norms) + 2 == len(trained(after))
    assert all(torch.equal(after[name], before[name]) for name in convolutions)
    assert not any(torch.equal(after[name], before[name]) for name in norms)


def test_the_file_says_how_it_was_made_and_what_it_errs_on(folder: Path) -> None:
    with safe_open(folder / "out.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["ctta"])
    assert (facts["side"], facts["training"]["passes"]) == (32, 1)
    assert facts["held_out_error"] == round(float((folder / "error").read_text()), 2)
    # Three of 21 photographs are held out, the first of every ten.
    assert facts["held_out_error"] in (0.0, 33.33, 66.67, 100.0)


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"must be a file; .* is a folder"):
        train_pacs(tmp_path / "no data", tmp_path / "no weights", tmp_path, ONE_PASS)
