"""Weight files: every supported format of a good one, and the error for a bad one."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file
from torch import Tensor, nn

from ctta.errors import MissingData, NotWeights
from ctta.nets.by_name import load_model
from ctta.nets.weights import fit, read_weights

TABLE = {"conv.weight": torch.arange(36.0).reshape(4, 1, 3, 3), "fc.bias": torch.tensor([1.0, -2.0])}


def prefixed(prefix: str) -> dict[str, Tensor]:
    return {prefix + key: value for key, value in TABLE.items()}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "content",
    [
        TABLE,
        prefixed("module."),
        prefixed("model."),
        prefixed("module.model."),
        prefixed("_orig_mod."),
        {"state_dict": prefixed("module."), "epoch": 3, "optimizer": {"state": {}, "param_groups": []}},
        {"state_dict": TABLE, "model": "resnext", "best_acc": 0.78},
        {"model": TABLE},
        {"model_state_dict": TABLE},
        {"model": {"state_dict": TABLE}},
        {"state_dict": TABLE, "best_prec1": np.float64(91.73), "epoch": np.int64(3)},
    ],
    ids=lambda content: "+".join(content)[:40],
)
def test_torch_files_in_every_usual_envelope(tmp_path: Path, content: dict[str, Any], zipped: bool) -> None:
    torch.save(content, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    read = read_weights(tmp_path / "w.pt")
    assert read.keys() == TABLE.keys()
    assert all(torch.equal(read[key], TABLE[key]) for key in TABLE)


@pytest.mark.parametrize("wrapper", ["", "module.", "_orig_mod.", "model."])
@pytest.mark.parametrize("child", ["module", "model"])
def test_a_network_whose_only_child_is_named_like_a_wrapper_loads_its_own_weights(
    tmp_path: Path, child: str, wrapper: str
) -> None:
    layers = "nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)"
    text = f"from torch import nn\ndef build():\n    net = nn.Sequential()\n    net.{child} = nn.Sequential({layers})\n"
    (tmp_path / "own_net.py").write_text(f"{text}    return net\n")
    weights = {f"{child}.2.weight": torch.arange(6.0).reshape(2, 3), f"{child}.2.bias": torch.tensor([1.0, -2.0])}
    save_file({wrapper + name: value for name, value in weights.items()}, tmp_path / "w.safetensors")
    loaded = load_model(f"{tmp_path / 'own_net.py'}:build", tmp_path / "w.safetensors").classifier.model.state_dict()
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_safetensors_are_known_by_content_not_by_suffix(tmp_path: Path) -> None:
    save_file(prefixed("module."), tmp_path / "w.pt")
    assert torch.equal(read_weights(tmp_path / "w.pt")["fc.bias"], TABLE["fc.bias"])


def test_a_prefix_that_only_some_names_have_is_part_of_the_names(tmp_path: Path) -> None:
    save_file({"model.a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "w.safetensors")
    assert set(read_weights(tmp_path / "w.safetensors")) == {"model.a", "b"}


@pytest.mark.parametrize("names", [("mu", "sigma"), ("module.mu", "module.sigma"), ("model.mu", "model.sigma")])
def test_normalisation_is_dropped_only_when_named(tmp_path: Path, names: tuple[str, str]) -> None:
    prefix = names[0].removesuffix("mu")
    save_file(prefixed(prefix) | {name: torch.full((1, 3, 1, 1), 0.5) for name in names}, tmp_path / "w.pt")
    assert set(read_weights(tmp_path / "w.pt", drop=("mu", "sigma"))) == set(TABLE)
    assert set(read_weights(tmp_path / "w.pt")) == {*TABLE, "mu", "sigma"}


def test_normalisation_beside_a_prefixed_network_is_dropped_first(tmp_path: Path) -> None:
    save_file(prefixed("model.") | {"normalize.mean": torch.ones(3)}, tmp_path / "w.pt")
    assert set(read_weights(tmp_path / "w.pt", drop=("normalize.mean",))) == set(TABLE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_and_counters_stay(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"w": torch.tensor([0.5, 2.0], dtype=dtype), "n": torch.tensor(7)}, tmp_path / "w.safetensors")
    read = read_weights(tmp_path / "w.safetensors")
    assert read["w"].dtype == torch.float32
    assert read["w"].tolist() == [0.5, 2.0]
    assert read["n"].dtype == torch.int64


class RunsCode:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.victim),)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    victim = tmp_path / "made"
    torch.save({"state_dict": RunsCode(victim)}, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(NotWeights, match=r"w\.pt is a pickle that calls \w+\.mkdir, not plain weights"):
        read_weights(tmp_path / "w.pt")
    assert not victim.exists()


def test_a_plain_pickle_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    victim = tmp_path / "made"
    (tmp_path / "w.pt").write_bytes(pickle.dumps(RunsCode(victim)))
    with pytest.raises(NotWeights, match="a pickle that torch did not write"):
        read_weights(tmp_path / "w.pt")
    assert not victim.exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            b"<!DOCTYPE html><html>" + 2379 * b" ",
            "cifar10.pt is an HTML page (2.4 kB), not weights: the host asked for confirmation.",
        ),
        (b"\xef\xbb\xbf\n<HTML>", "cifar10.pt is an HTML page (10 bytes), not weights"),
        (b"<?xml version='1.0'?><Error/>", "cifar10.pt is an XML page (29 bytes), not weights"),
        (b"", "cifar10.pt is an empty file, not weights"),
        (b"version https://git-lfs.github.com/spec/v1\n", "cifar10.pt is a Git LFS pointer (43 bytes)"),
        (bytes(range(64)), "cifar10.pt is neither a safetensors nor a torch file (64 bytes)"),
        (save(TABLE)[:-8], "cifar10.pt is damaged, truncated or foreign"),
    ],
    ids=["html", "html with bom", "xml", "empty", "lfs", "noise", "truncated"],
)
def test_the_error_says_what_the_file_is(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "cifar10.pt").write_bytes(content)
    with pytest.raises(NotWeights) as raised:
        read_weights(tmp_path / "cifar10.pt")
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (torch.ones(2), "w.pt holds a Tensor, not a table of tensors."),
        ({"epoch": 3, "args": {"lr": 0.1}}, "w.pt holds no table of tensors. It holds: 'epoch', 'args'."),
        ({}, "w.pt holds no table of tensors. It holds: nothing."),
    ],
    ids=["tensor", "no tensors", "nothing"],
)
def test_a_torch_file_of_something_else(tmp_path: Path, content: object, sentence: str) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(NotWeights) as raised:
        read_weights(tmp_path / "w.pt")
    assert str(raised.value) == sentence


def test_a_whole_saved_module_is_refused_with_advice(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "w.pt")
    with pytest.raises(NotWeights, match=r"calls torch\.nn\.modules\.linear\.Linear.*Save its state_dict\(\)"):
        read_weights(tmp_path / "w.pt")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"w\.pt is not in .*Put it there"):
        read_weights(tmp_path / "w.pt")
    with pytest.raises(NotWeights, match="is a folder"):
        read_weights(tmp_path)


@pytest.fixture(scope="module", params=["zip", "legacy", "safetensors"])
def good_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "good"
    if request.param == "safetensors":
        save_file(TABLE, path)
    else:
        torch.save({"state_dict": TABLE}, path, _use_new_zipfile_serialization=request.param == "zip")
    return path


def test_no_cut_file_is_read_or_fails_otherwise(good_file: Path) -> None:
    whole = good_file.read_bytes()
    cut = good_file.with_name("cut")
    for kept in (0, 1, len(whole) - 1, *random.Random(0).sample(range(2, len(whole) - 1), 60)):
        cut.write_bytes(whole[:kept])
        with pytest.raises(NotWeights, match=r"^cut is "):
            read_weights(cut)


def test_a_flipped_byte_gives_weights_or_the_named_error(good_file: Path) -> None:
    whole, draw = good_file.read_bytes(), random.Random(0)
    path = good_file.with_name("flipped")
    for place in (0, len(whole) - 1, *draw.sample(range(1, len(whole) - 1), 60)):
        damaged = bytearray(whole)
        damaged[place] ^= draw.randint(1, 255)
        path.write_bytes(damaged)
        try:
            read_weights(path)
        except NotWeights as error:
            assert str(error).startswith("flipped ")


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


def test_fit_copies_every_tensor() -> None:
    torch.manual_seed(0)
    one, two = net(), net()
    fit(two, one.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_fit_does_without_batch_counters() -> None:
    weights = {k: v + 1 for k, v in net().state_dict().items() if not k.endswith("num_batches_tracked")}
    other = net()
    fit(other, weights)
    assert torch.equal(other.state_dict()["1.running_mean"], weights["1.running_mean"])
    assert other.state_dict()["1.num_batches_tracked"] == 0


def test_fit_says_everything_that_differs_and_changes_nothing() -> None:
    other = net()
    before = {key: value.clone() for key, value in other.state_dict().items()}
    weights = {key: value + 1 for key, value in before.items()}
    del weights["0.bias"], weights["1.running_var"]
    weights["3.weight"] = torch.zeros(10, 4)
    weights |= {f"extra{i}": torch.zeros(1) for i in range(7)}
    with pytest.raises(NotWeights) as raised:
        fit(other, weights, what="The weights in w.pt")
    assert str(raised.value) == (
        "The weights in w.pt do not fit Sequential: 2 missing: 0.bias, 1.running_var; "
        "7 unexpected: extra0, extra1, extra2, extra3, extra4, ...; "
        "1 of another shape: 3.weight (10, 4) instead of (2, 4)."
    )
    assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())
