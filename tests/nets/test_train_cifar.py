"""Training a CIFAR source model: resumed bit for bit, with a file that records how it was trained."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from torch import nn

from ctta import nets
from ctta.errors import BadData, ParameterError
from ctta.nets.cifar10 import MEAN, STD, SourceModel
from ctta.nets.cifar_resnet import CifarResNet
from ctta.nets.train_cifar import CifarTraining, crops, train_cifar
from ctta.nets.vit import CifarViT
from ctta.nets.weights import fit, read_weights
from ctta.norms import batch_norms

HOW = CifarTraining(passes=3, small_passes=1, small=12, batch_size=8, seed=5)
ADAMW = replace(HOW, optimizer="adamw", lr=1e-3)


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


@pytest.mark.parametrize(("how", "stop_after"), [(HOW, 1), (HOW, 2), (ADAMW, 2)])
def test_an_interrupted_training_ends_with_the_same_bits(images, tmp_path, how, stop_after):
    straight = train_cifar(build, *images, how)

    def stop(number, percent, loss):
        if number > stop_after:
            raise Stopped

    with pytest.raises(Stopped):
        train_cifar(build, *images, how, resume=tmp_path / "state", progress=stop)
    seen = []
    resumed = train_cifar(
        build, *images, how, resume=tmp_path / "state", progress=lambda number, *_: seen.append(number)
    )
    assert seen[0] == stop_after + 1
    assert same(straight, resumed)
    finished = train_cifar(build, *images, how, resume=tmp_path / "state")
    assert same(straight, finished)


def test_a_state_of_another_training_is_refused(images, tmp_path):
    train_cifar(build, *images, HOW, resume=tmp_path / "state")
    other = CifarTraining(passes=3, small_passes=1, small=12, batch_size=8, seed=6)
    with pytest.raises(ParameterError, match="another seed"):
        train_cifar(build, *images, other, resume=tmp_path / "state")
    (tmp_path / "state").write_bytes(b"half a file")
    with pytest.raises(BadData, match="is not the state of a training"):
        train_cifar(build, *images, HOW, resume=tmp_path / "state")


@pytest.mark.parametrize(
    ("other", "layers"),
    [
        (lambda: CifarResNet(14, 2, shortcut="conv", width=4), "15 Conv2d, 15 BatchNorm2d"),
        (lambda: CifarResNet(8, 2, shortcut="conv", width=4, norm="group"), "9 Conv2d, 9 GroupNorm"),
    ],
    ids=["deeper", "group norm"],
)
def test_a_state_of_another_network_is_refused_and_both_are_named(images, tmp_path, other, layers):
    train_cifar(other, *images, HOW, resume=tmp_path / "state")
    named = r"training of CifarResNet \([\d,]+ parameters in {}, 1 Linear\)"
    ours = r"not of CifarResNet \([\d,]+ parameters in 9 Conv2d, 9 BatchNorm2d, 1 Linear\)"
    with pytest.raises(ParameterError, match=f"{named.format(layers)}, {ours}"):
        train_cifar(build, *images, HOW, resume=tmp_path / "state")


def test_a_state_written_before_the_network_was_recorded_is_continued_by_the_same_network_only(images, tmp_path):
    straight = train_cifar(build, *images, HOW, resume=tmp_path / "state")
    state = torch.load(tmp_path / "state", weights_only=True)
    del state["network"]
    torch.save(state, tmp_path / "state")
    assert same(straight, train_cifar(build, *images, HOW, resume=tmp_path / "state"))
    with pytest.raises(ParameterError, match=r"training of another network, not of CifarResNet \("):
        train_cifar(lambda: CifarResNet(14, 2, shortcut="conv", width=4), *images, HOW, resume=tmp_path / "state")


def test_a_state_written_before_there_was_a_choice_of_optimizer_is_continued(images, tmp_path):
    straight = train_cifar(build, *images, HOW, resume=tmp_path / "state")
    state = torch.load(tmp_path / "state", weights_only=True)
    del state["how"]["optimizer"]
    torch.save(state, tmp_path / "state")
    assert same(straight, train_cifar(build, *images, HOW, resume=tmp_path / "state"))
    with pytest.raises(ParameterError, match="another optimizer"):
        train_cifar(build, *images, replace(HOW, optimizer="adamw"), resume=tmp_path / "state")


def test_adamw_takes_the_steps_of_its_definition(images):
    """One step from the first weights, by the equations of Loshchilov & Hutter with torch's constants."""
    x, y = images
    how = CifarTraining(passes=1, small_passes=0, padding=0, batch_size=20, optimizer="adamw", lr=0.01, warm_up=0.5)
    first = {}

    def remembered():
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 2))
        first.update({name: value.detach().clone() for name, value in model.named_parameters()})
        return model

    # A mirrored image would have another gradient: these are their own mirror images.
    x = torch.maximum(x, x.flip(3))
    trained = train_cifar(remembered, x, y, how)
    start = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 2))
    start.load_state_dict(first)
    loss = torch.nn.functional.cross_entropy(start(x.float() / 255), y)
    gradients = torch.autograd.grad(loss, list(start.parameters()))
    lr = how.lr_at(0, 1)
    for gradient, (name, value) in zip(gradients, trained.named_parameters(), strict=True):
        expected = first[name] * (1 - lr * how.weight_decay) - lr * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-6)


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ParameterError, match="optimizer"):
        CifarTraining(optimizer="adam")


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
        said = json.loads(file.metadata()["ctta"])
    assert (said["accuracy"], said["training"]["seed"], said["training"]["passes"]) == (91.23, 5, 3)
    assert said["command"] == "ctta train cifar10 --seed 5"
    assert (said["mean"], said["std"]) == (list(MEAN), list(STD))
    assert said["training"]["small"] == 12


def test_the_same_weights_give_the_same_file(tmp_path):
    source = SourceModel.named("resnet8")
    model = source.build()
    for name in ("a", "b"):
        source.save(model, tmp_path / name, HOW, accuracy=50.0, command="")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_group_norm_network_starts_from_the_parameters_of_the_bundled_one():
    source = SourceModel.named("resnet20-gn")
    model, bundled = source.build().model, nets.load("cifar10_resnet20_ctta")
    assert not batch_norms(model)
    parameters = dict(bundled.named_parameters())
    assert parameters.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(value, parameters[name]) for name, value in model.named_parameters())
    assert SourceModel.named("resnet26-gn").start is None


def test_a_training_has_the_settings_of_its_network_except_those_given():
    source = SourceModel.named("vit-tiny")
    assert source.training() == source.how
    assert source.how.optimizer == "adamw"
    changed = source.training(passes=10, lr=0.5, label_smoothing=0.2, seed=3)
    expected = {"passes": 10, "small_passes": 6, "lr": 0.5, "label_smoothing": 0.2, "seed": 3}
    assert changed == replace(source.how, **expected)
    assert source.training(small_passes=1) == replace(source.how, small_passes=1)


@pytest.mark.parametrize("net", ["resnet8", "resnet8-gn", "vit-tiny"])
def test_the_file_names_the_constructor_of_its_network(net, tmp_path):
    source = SourceModel.named(net)
    source.save(source.build(), tmp_path / "a.safetensors", HOW, accuracy=50.0, command="")
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        said = json.loads(file.metadata()["ctta"])["net"]
    built = eval(said, {"CifarResNet": CifarResNet, "CifarViT": CifarViT})
    fit(built, read_weights(tmp_path / "a.safetensors"))


def test_an_unknown_net_is_refused():
    with pytest.raises(ParameterError, match="resnet20"):
        SourceModel.named("vgg16")
