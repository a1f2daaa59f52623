"""The last stage, which SAR and DeYO leave alone, is found from the structure of the network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta._adapter.last_stage import last_stage_norms
from ctta.cli.doctor import doctor
from ctta.doctor import examine
from ctta.nets.models import MODELS
from ctta.norms import norm_layers
from reference import net

D = 8


def by_the_published_names(model: nn.Module) -> list[str]:
    """The choice of the authors of SAR and DeYO, as their code makes it."""
    last = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm.")
    return [name for name in norm_layers(model) if name == "norm" or any(part in name for part in last)]


# In neither paper: the published names pick three blocks from the middle of EfficientNet-Lite, and none of a ViT with
# four blocks.
PUBLISHED = [name for name in MODELS if "efficientnet_lite0" not in name and "vit" not in name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_is_the_published_choice_on_networks_with_published_weights(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name].build()
    assert list(last_stage_norms(model)) == by_the_published_names(model)


def test_it_is_the_published_choice_on_the_network_of_the_conformance_vectors() -> None:
    assert list(last_stage_norms(net())) == by_the_published_names(net()) == ["layer4.bn1", "layer4.bn2"]


def test_a_flat_row_of_blocks_loses_its_last_quarter_and_what_follows() -> None:
    with torch.device("meta"):
        model = MODELS["imagenet_efficientnet_lite0"].build()
    left_out = list(last_stage_norms(model))
    blocks = [f"_blocks.{block}._bn{norm}" for block in (12, 13, 14, 15) for norm in (0, 1, 2)]
    assert left_out == [*blocks, "_bn1"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_a, self.mix, self.ln_b = nn.LayerNorm(D), nn.Linear(D, D), nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.ln_b(self.mix(self.ln_a(x)))


class Transformer(nn.Module):
    """A vision transformer with no layer name in the published list."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, D, 4, 4)
        self.pre = nn.LayerNorm(D)
        self.trunk = nn.ModuleDict({"units": nn.ModuleList(Block() for _ in range(depth))})
        self.final = nn.LayerNorm(D)
        self.classify = nn.Linear(D, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.pre(self.embed(x).flatten(2).mT)
        for unit in self.trunk["units"]:
            tokens = unit(tokens)
        return self.classify(self.final(tokens).mean(1))


@pytest.mark.parametrize(("depth", "last"), [(12, [9, 10, 11]), (4, [3]), (7, [6]), (8, [6, 7])])
def test_a_transformer_loses_its_last_quarter_and_its_final_norm(depth: int, last: list[int]) -> None:
    expected = [f"trunk.units.{block}.{norm}" for block in last for norm in ("ln_a", "ln_b")]
    assert list(last_stage_norms(Transformer(depth))) == [*expected, "final"]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_network_of_fewer_than_four_blocks_loses_nothing(depth: int) -> None:
    assert last_stage_norms(Transformer(depth)) == {}


def test_wrapping_changes_nothing() -> None:
    wrapped = nn.Sequential(nn.Identity(), Transformer(8))
    assert list(last_stage_norms(wrapped)) == [f"1.{name}" for name in last_stage_norms(Transformer(8))]


def test_a_head_with_many_classes_hides_no_stage() -> None:
    model = Transformer(8)
    model.classify = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 100_000, device="meta"))
    assert "trunk.units.7.ln_b" in last_stage_norms(model) and "classify.0" in last_stage_norms(model)


def test_a_norm_behind_a_linear_layer_is_trained() -> None:
    model = nn.Sequential(Transformer(4), nn.BatchNorm1d(10), nn.Linear(10, 10))
    assert "0.final" in last_stage_norms(model) and "1" not in last_stage_norms(model)


def test_a_plain_row_of_convolutions_loses_its_last_quarter() -> None:
    layers = [layer for _ in range(8) for layer in (nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU())]
    assert list(last_stage_norms(nn.Sequential(*layers, nn.Flatten(), nn.Linear(3, 10)))) == ["19", "22"]


def test_a_model_without_norm_layers_has_no_last_stage() -> None:
    assert last_stage_norms(nn.Sequential(nn.Conv2d(3, 3, 1), nn.Flatten(), nn.Linear(3, 2))) == {}


@pytest.mark.parametrize("method", [ctta.SAR, ctta.DeYO])
def test_the_methods_train_all_norms_but_those(method: type[ctta.Adapter]) -> None:
    adapter = method(Transformer(8))
    learning = {id(parameter) for parameter in adapter.trained}
    trained = {name for name, p in adapter.student.model.named_parameters() if id(p) in learning}
    kept = ["pre", *(f"trunk.units.{block}.{norm}" for block in range(6) for norm in ("ln_a", "ln_b"))]
    assert trained == {f"{layer}.{part}" for layer in kept for part in ("weight", "bias")}


def test_doctor_names_the_layers_left_out() -> None:
    reports = {report.name: report for report in examine(Transformer(4)).methods}
    assert reports["sar"].left_out == reports["deyo"].left_out
    assert reports["sar"].left_out == ("trunk.units.3.ln_a", "trunk.units.3.ln_b", "final")
    assert all(not report.left_out for name, report in reports.items() if name not in ("sar", "deyo"))


def test_the_doctor_command_prints_the_layers_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    doctor("reference:net")
    assert "sar leaves out 2 of 11 norm layers: layer4.bn1 to layer4.bn2" in capsys.readouterr().out


class Backwards(nn.Module):
    """Registers its four stages in the opposite order."""

    def __init__(self) -> None:
        super().__init__()
        for stage in (4, 3, 2, 1):
            layers = (nn.Conv2d(D, D, 3, padding=1), nn.BatchNorm2d(D), nn.ReLU())
            self.add_module(f"layer{stage}", nn.Sequential(*layers))
        self.stem, self.fc = nn.Conv2d(3, D, 3), nn.Linear(D, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in (1, 2, 3, 4):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


def test_doctor_warns_of_norms_that_run_after_those_left_out() -> None:
    among = {"sar": ctta.SAR, "tent": ctta.Tent}
    wrong, right = (examine(model, image_size=16, among=among).methods for model in (Backwards(), Transformer(4)))
    assert {report.name: report.trained_later for report in wrong} == {
        "sar": ("layer2.1", "layer3.1", "layer4.1"),
        "tent": (),
    }
    assert all(report.trained_later == () for report in right)


@pytest.mark.parametrize("method", [ctta.SAR, ctta.DeYO])
def test_the_first_step_warns_of_norms_that_run_after_those_left_out(
    method: type[ctta.Adapter], caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.rand(4, 3, 16, 16)
    adapter = method(Backwards())
    assert not caplog.records
    adapter.step(x)
    assert caplog.messages == [
        f"{method.__name__} does not train the last stage, and took layer1.1 for it, but layer2.1 runs later and is "
        'trained. Name the modules of the last stage, such as last_stage="layer4".'
    ]
    adapter.step(x)
    assert len(caplog.messages) == 1
    assert not any(layer._forward_pre_hooks for layer in adapter.modules())


@pytest.mark.parametrize("method", [ctta.SAR, ctta.DeYO])
def test_the_first_step_is_silent_if_the_last_stage_is_named_or_found(
    method: type[ctta.Adapter], caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.rand(4, 3, 16, 16)
    for adapter in (method(Backwards(), last_stage="layer2"), method(Transformer(8))):  # type: ignore[call-arg]
        adapter.step(x)
    assert not caplog.records


@pytest.mark.parametrize("method", [ctta.SAR, ctta.DeYO])
def test_the_last_stage_can_be_named(method: type[ctta.Adapter], tmp_path: Path) -> None:
    model = Backwards()
    adapter = method(model, last_stage="layer4, layer3.1")
    norms = norm_layers(adapter.student.model)
    assert [name for name, layer in norms.items() if layer.weight.requires_grad] == ["layer2.1", "layer1.1"]
    assert all(layer.weight.requires_grad for layer in norm_layers(method(net(), last_stage="").student).values())
    adapter.save(tmp_path / "a.ctta")
    loaded = method.load(tmp_path / "a.ctta", model)
    assert len(loaded.trained) == len(adapter.trained) == 4
    with pytest.raises(ctta.errors.ParameterError, match=r"'layer9' is none of them\. It has: layer4, layer3"):
        method(Backwards(), last_stage="layer9")
