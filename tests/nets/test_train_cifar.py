"""Training a CIFAR source model: resumed bit for bit, with a file that records how it was trained."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open

from ctta.errors import BadData, ParameterError
from ctta.nets.cifar10 import MEAN, STD, SourceModel
from ctta.nets.cifar_resnet import CifarResNet
from ctta.nets.train_cifar import CifarTraining, crops, train_cifar
from ctta.nets.weights import fit, read_weights

HOW = CifarTraining(passes=3, small_passes=1, small=12, batch_size=8, seed=5)


class Stopped(Exception):
    """Simulates an interruption."""


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(20) % 2
    x = torch.randint(0, 100, (20, 3, 16, 16), generator=generator) + 150 * y.view(-1, 1, 1, 1)
    return x.to(torch.uint8), y


def build():
    return CifarResNet(8, 2, shortcut="conv", width=4)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_it_learns_and_leaves_the_global_generator_alone(images):
    before = torch.get_rng_state()
    model = train_cifar(build, *images, CifarTraining(passes=8, small_passes=2, small=12, batch_size=8, padding=1))
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    x, y = images
    assert (model(x.float() / 255).argmax(1) == y).float().mean() >= 0.9


@pytest.mark.parametrize("stop_after", [1, 2])
def test_an_interrupted_training_ends_with_the_same_bits(images, tmp_path, stop_after):
    straight = train_cifar(build, *images, HOW)

    def stop(number, percent, loss):
        if number > stop_after:
            raise Stopped

    with pytest.raises(Stopped):
        train_cifar(build, *images, HOW, resume=tmp_path / "state", progress=stop)
    seen = []
    resumed = train_cifar(
        build, *images, HOW, resume=tmp_path / "state", progress=lambda number, *_: seen.append(number)
    )
    assert seen[0] == stop_after + 1
    assert same(straight, resumed)
    finished = train_cifar(build, *images, HOW, resume=tmp_path / "state")
    assert same(straight, finished)


def test_a_state_of_another_training_is_refused(images, tmp_path):
    train_cifar(build, *images, HOW, resume=tmp_path / "state")
    other = CifarTraining(passes=3, small_passes=1, small=12, batch_size=8, seed=6)
    with pytest.raises(ParameterError, match="another seed"):
        train_cifar(build, *images, other, resume=tmp_path / "state")
    (tmp_path / "state").write_bytes(b"half a file")
    with pytest.raises(BadData, match="is not the state of a training"):
        train_cifar(build, *images, HOW, resume=tmp_path / "state")


def test_the_learning_rate_rises_and_falls_to_zero():
    how = CifarTraining(passes=10, small_passes=0, lr=0.4, warm_up=0.25)
    rates = [how.lr_at(step, 100) for step in range(100)]
    assert rates[:25] == pytest.approx([0.4 * (i + 1) / 25 for i in range(25)])
    assert rates[24:] == sorted(rates[24:], reverse=True)
    assert rates[-1] == pytest.approx(0)
    assert max(rates) == pytest.approx(0.4)


def test_small_passes_cannot_outnumber_the_passes():
    with pytest.raises(ParameterError, match="small_passes"):
        CifarTraining(passes=3, small_passes=4)


@pytest.mark.parametrize(("side", "padding"), [(12, 0), (16, 4), (16, 0)])
def test_every_crop_is_a_piece_of_its_image_perhaps_mirrored(side, padding):
    x = torch.arange(40 * 3 * 16 * 16, dtype=torch.float32).reshape(40, 3, 16, 16)
    found = crops(x, side, padding, torch.Generator().manual_seed(0))
    assert found.shape == (40, 3, side, side)
    padded = torch.nn.functional.pad(x, (padding,) * 4, mode="reflect") if padding else x
    mirrored = 0
    for image, crop in zip(padded, found, strict=True):
        pieces = image.unfold(1, side, 1).unfold(2, side, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
        plain = any(torch.equal(piece, crop) for piece in pieces)
        mirrored += not plain
        assert plain or any(torch.equal(piece.flip(2), crop) for piece in pieces)
    assert 8 < mirrored < 32


def test_the_file_carries_float_weights_and_how_they_came_about(tmp_path):
    source = SourceModel.named("resnet8")
    model = source.build()
    source.save(model, tmp_path / "a.safetensors", HOW, accuracy=91.234, command="ctta train cifar10 --seed 5")
    net = CifarResNet(8, 10, shortcut="conv")
    fit(net, read_weights(tmp_path / "a.safetensors"))
    assert same(net, model.model)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        said = file.metadata()
    assert (said["accuracy"], said["seed"], said["passes"]) == ("91.23", "5", "3")
    assert said["command"] == "ctta train cifar10 --seed 5"
    assert json.loads(said["mean"]) == list(MEAN)
    assert json.loads(said["std"]) == list(STD)
    assert json.loads(said["training"])["small"] == 12


def test_an_unknown_net_is_refused():
    with pytest.raises(ParameterError, match="resnet20"):
        SourceModel.named("vgg16")
