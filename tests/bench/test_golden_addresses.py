"""A run keeps its address when the code around it moves: these were computed once and never change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctta import nets
from ctta.bench.defaults import batch_size
from ctta.bench.inputs import open_stream
from ctta.bench.jobs import Inputs, Job
from ctta.bench.specification import spec_of
from ctta.paper import experiment
from ctta.paper.reproduce import Request, plan
from ctta.statistics import Batch, Share
from jobs import make_job

NET = ("digits", "digits_resnet8")
DIGITS: dict[str, Any] = {"stream": "digits", "model": "digits_resnet8", "batch_size": 50}
#: Random images in place of CIFAR-10: only their digest is in an address.
NOISE: dict[str, Any] = {"stream": "cifar10-c", "model": "cifar10_resnet20_ctta", "data": "clean.npz"}


def address_of(job: Job) -> str:
    stream, data = open_stream(job.work)
    return spec_of(job.work, nets.classifier(job.work.inputs.model), stream, data).address


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for seed, name in enumerate(("clean.npz", "source.npz")):
        x = np.random.default_rng(seed).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
        np.savez(tmp_path / name, x=x, y=np.arange(40) % 10)
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        pytest.param({"method": "source", **DIGITS}, "995cb8b1cd0d03268295", id="source, digits"),
        pytest.param({"method": "dmse", "seed": 3, **DIGITS}, "bebc10e42942a1ac7232", id="recipe with a seed"),
        pytest.param(
            {"method": "tent", "settings": {"lr": 1}, "images": 20, **DIGITS},
            "b1263ad634b16ecd67e3",
            id="a setting written as an integer",
        ),
        pytest.param({"method": "cotta", "protocol": "gradual", **DIGITS}, "90de6a82eaa803870a73", id="gradual"),
        pytest.param(
            {"method": "rotta", "protocol": "correlated", "images": 30, **DIGITS},
            "6dcb9e2a8d35d75ff74c",
            id="correlated",
        ),
        pytest.param(
            {"method": "roid", "protocol": "mixed", "severity": 3, **DIGITS},
            "29caee4ad2f3e158cb83",
            id="mixed, severity 3",
        ),
        pytest.param(
            {"method": "sar", "protocol": "recurring", "times": 3, **DIGITS}, "8660bdb5c12dcfe9745f", id="recurring"
        ),
        pytest.param(
            {"method": "deyo", "protocol": "random-order", "seed": 2, **DIGITS},
            "c8b7e0b6d10828c329b1",
            id="random order",
        ),
        pytest.param({"method": "bn", "protocol": "clean", **DIGITS}, "1fd93eb96cbf3074b8ef", id="clean"),
        pytest.param(
            {"method": "rmt", "protocol": "then-clean-resting", **DIGITS},
            "461da9a2717163adac2a",
            id="then clean, resting",
        ),
        pytest.param({"method": "eata", "learn": False, **DIGITS}, "c9d3a6068d5dff1bd877", id="without learning"),
        pytest.param(
            {
                "method": "rdumb",
                "corruptions": ("fog", "speckle_noise"),
                "batch_size": batch_size("cifar10-c"),
                **NOISE,
            },
            "b74299a6d762f3b02935",
            id="own npz, two corruptions",
        ),
        pytest.param(
            {"method": "santa", "source_data": "source.npz", **NOISE}, "f19674ec7920abed147b", id="source data"
        ),
        pytest.param(
            {"method": "tent", "protocol": "then-clean", "clean": "source.npz", **NOISE},
            "7daa179d1f16044e1211",
            id="clean npz",
        ),
    ],
)
def test_ctta_run(asked: dict[str, Any], address: str, files: Path) -> None:
    paths = {name: files / asked[name] for name in ("data", "source_data", "clean") if name in asked}
    assert address_of(make_job(**asked | paths)) == address


@pytest.mark.parametrize(
    ("name", "request_", "addresses"),
    [
        ("reset", Request("digits", Inputs(*NET, images=20)), ["c8fb7c4b81d34dbe8e90", "6ca35a7f7d9c50f5c8b8"]),
        (
            "clean-source",
            Request("digits", Inputs(*NET), methods=frozenset({"dmse"}), seeds=(1,)),
            ["5825abc98aff35fd6eb0", "667e99c4854a19edf54f"],
        ),
        (
            "long",
            Request("digits", Inputs(*NET, corruptions=("fog",))),
            ["af85e1cd44cd1568d84b", "80431801ec5dc3661831"],
        ),
    ],
)
def test_ctta_reproduce(name: str, request_: Request, addresses: list[str]) -> None:
    assert [address_of(job) for job in plan(experiment(name), request_).jobs] == addresses


def test_statistics_have_one_address_however_they_are_written() -> None:
    def address(**settings: object) -> str:
        return address_of(make_job(method="dmse", seed=3, settings=settings, **DIGITS))

    assert address(statistics="batch") == address(statistics=Batch()) == "bebc10e42942a1ac7232"  # the default
    assert address(statistics="share:0.40") == address(statistics=Share(0.4)) != address(statistics="share:0.5")
