"""The table of models, building and loading by name."""

from __future__ import annotations

import copy
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from nets_data import shared_file
from safetensors.torch import save_file
from torch import nn

from ctta import nets
from ctta.errors import MissingData, NotWeights, UnknownName


@pytest.mark.parametrize("name", nets.MODELS)
def test_an_entry_agrees_with_its_network(name: str) -> None:
    model = nets.MODELS[name]
    assert model.name == name
    with torch.device("meta"):
        net = nets.build(name)
    head = net.get_submodule(model.head)
    linears = [key for key, module in net.named_modules() if isinstance(module, nn.Linear)]
    assert isinstance(head, nn.Linear)
    assert head.out_features == model.num_classes
    assert linears[-1] == model.head  # found without being named
    assert (model.mean is None) == (model.std is None)
    with torch.no_grad():
        logits = net(torch.empty(2, 3, model.input_size, model.input_size, device="meta"))
    assert logits.shape == (2, model.num_classes)


@pytest.mark.parametrize("name", nets.MODELS)
def test_a_copy_is_independent(name: str) -> None:
    with torch.device("meta"):
        net = nets.build(name)
    twin = copy.deepcopy(net)
    assert not {id(p) for p in net.parameters()} & {id(p) for p in twin.parameters()}


def test_load_gives_the_file_s_weights_in_eval_mode(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = nets.build("cifar10_resnet20")
    save_file(source.state_dict(), tmp_path / "mine.safetensors")
    save_file(source.state_dict(), tmp_path / nets.MODELS["cifar10_resnet20"].file)
    for path in (tmp_path / "mine.safetensors", tmp_path):
        net = nets.load("cifar10_resnet20", path)
        assert not net.training
        assert all(torch.equal(value, source.state_dict()[key]) for key, value in net.state_dict().items())


def test_load_says_which_file_from_where_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(MissingData) as raised:
        nets.load("cifar10_wrn28_10", tmp_path)
    assert str(raised.value) == (
        f"The weights of cifar10_wrn28_10 are not at {tmp_path / 'Standard.pt'}. They are published as Standard.pt "
        "(RobustBench model zoo, cifar10/corruptions/Standard): put that file there, or give the path of your copy "
        "(on the command line with --weights)."
    )


def test_load_refuses_another_network_s_file(tmp_path: Path) -> None:
    save_file(nets.build("cifar100_resnet56").state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(NotWeights, match=r"The weights in w\.safetensors do not fit CifarResNet: 2 missing: linear"):
        nets.load("cifar10_resnet56", tmp_path / "w.safetensors")


def test_the_augmix_file_may_carry_its_normalisation_and_only_that(tmp_path: Path) -> None:
    state = nets.build("cifar100_resnext29").state_dict()
    buffers = {"mu": torch.full((1, 3, 1, 1), 0.5), "sigma": torch.full((1, 3, 1, 1), 0.5)}
    torch.save({"state_dict": {f"module.{k}": v for k, v in (state | buffers).items()}}, tmp_path / "w.pt")
    nets.load("cifar100_resnext29", tmp_path / "w.pt")
    torch.save(state | {"nu": buffers["mu"]}, tmp_path / "w.pt")
    with pytest.raises(NotWeights, match=r"do not fit CifarResNeXt: 1 unexpected: nu\."):
        nets.load("cifar100_resnext29", tmp_path / "w.pt")


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"'cifar10_resnet2O'.* Did you mean 'cifar10_resnet20'"):
        nets.build("cifar10_resnet2O")
    with pytest.raises(nets.UnknownModel):
        nets.load("resnet", "nowhere")


def test_listing_the_table_imports_no_network() -> None:
    program = "import sys, ctta.nets; print(*(m for m in sys.modules if m.startswith('ctta.nets.')))"
    listed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert listed.stdout.split() == ["ctta.nets.models"]


SHIPPED = [name for name in nets.MODELS if (nets.SHIPPED / nets.MODELS[name].file).exists()]


@pytest.mark.shared_data
@pytest.mark.parametrize("name", [n for n, model in nets.MODELS.items() if model.sha256 and n not in SHIPPED])
def test_digests_are_those_of_the_files(name: str) -> None:
    model = nets.MODELS[name]
    assert hashlib.sha256(shared_file(model.file).read_bytes()).hexdigest() == model.sha256


@pytest.mark.parametrize("name", SHIPPED)
def test_models_that_come_with_the_package_load_without_a_path(name: str) -> None:
    model = nets.MODELS[name]
    assert hashlib.sha256((nets.SHIPPED / model.file).read_bytes()).hexdigest() == model.sha256
    logits = nets.classifier(name)(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 10)


def test_four_models_come_with_the_package() -> None:
    assert SHIPPED == ["digits_resnet8", "cifar10_resnet20_ctta", "cifar10_resnet20_gn_ctta", "cifar10_vit_ctta"]
