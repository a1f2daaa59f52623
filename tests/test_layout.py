"""channels_last is used if and only if it is safe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import ctta
from ctta._adapter.layout import fastest_layout, safe_layout
from ctta.nets.models import MODELS
from ctta.testing.compare import difference
from narrow_strides import HIDDEN, OwnStride, hiding


class OwnConv(nn.Module):
    """A hand-written 1x1 convolution that exposes only its weight."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.ones(16, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.kernel, stride=2)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(1, 16, 1, stride=2),
        nn.Conv2d(3, 4, 1, stride=2),
        nn.Conv2d(7, 128, 1, stride=(1, 2)),
        weight_norm(nn.Conv2d(4, 8, 1, stride=2)),
        OwnConv(4),
        OwnStride(4, 16, 1),
        nn.GroupNorm(1, 4),
        nn.Conv3d(3, 16, 3),
    ],
)
def test_a_network_with_a_layer_that_fails_in_channels_last_stays_in_planes(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(layer))
    assert fastest_layout(model) is torch.contiguous_format
    assert safe_layout(model) is torch.contiguous_format


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 16, 1, stride=2),
        nn.Conv2d(3, 16, 1),
        nn.Conv2d(3, 16, 3, stride=2),
        nn.Conv2d(4, 8, 1, stride=2, groups=2),
        nn.ConvTranspose2d(4, 4, 1, stride=2),
        weight_norm(nn.Conv2d(16, 16, 3)),
        OwnConv(8),
    ],
)
def test_every_other_network_runs_in_channels_last(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(layer))
    assert fastest_layout(model) is torch.channels_last
    assert safe_layout(model) is torch.preserve_format


@pytest.mark.parametrize("name", MODELS)
def test_the_networks_of_the_published_results_keep_their_layout(name: str) -> None:
    layout = torch.contiguous_format if name == "cifar10_resnet20_gn_ctta" else torch.channels_last  # group norm
    with torch.device("meta"):
        assert fastest_layout(MODELS[name].build()) is layout


@pytest.mark.parametrize("form", HIDDEN)
@pytest.mark.parametrize("begin", [lambda adapter, x: adapter.step(x), lambda adapter, x: adapter.ask(x).learn()])
def test_a_convolution_that_only_a_forward_pass_shows_is_trained_in_planes(
    form: str, begin: Callable[[ctta.Adapter, Tensor], ctta.Step]
) -> None:
    x = torch.rand(4, 3, 16, 16)
    torch.manual_seed(0)
    model = hiding(form)
    adapter, planes = ctta.DMSE(model), ctta.DMSE(model)
    planes._layout = torch.contiguous_format
    planes.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    assert torch.equal(begin(adapter, x).logits, planes.step(x).logits)
    assert adapter._layout is torch.contiguous_format and adapter.steps == 1
    assert difference(adapter.state_dict(), planes.state_dict()) is None
    assert all(p.is_contiguous() for p in adapter.parameters())


@pytest.mark.parametrize("method", [ctta.RoTTA, ctta.NOTE])
@pytest.mark.parametrize("begin", [lambda adapter, x: adapter.step(x), lambda adapter, x: adapter.ask(x).learn()])
def test_a_method_that_learns_later_from_a_memory_is_observed_when_it_learns(
    method: type[ctta.Adapter], begin: Callable[[ctta.Adapter, Tensor], ctta.Step]
) -> None:
    torch.manual_seed(0)
    adapter = method(hiding("matrix"), memory_size=8, update_every=8)  # type: ignore[call-arg]
    for steps in (1, 2, 3):
        begin(adapter, torch.rand(4, 3, 16, 16))
        assert adapter.steps == steps
        assert adapter._layout is (torch.channels_last if steps == 1 else torch.contiguous_format)


def test_a_safe_network_is_observed_once_and_keeps_its_layout() -> None:
    adapter = ctta.Tent(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1, 2), nn.Flatten(), nn.Linear(196, 3))
    )
    adapter.step(torch.rand(2, 3, 16, 16))
    assert adapter._layout_proven and adapter._layout is torch.channels_last


def test_adapting_and_training_a_slim_network_leaves_the_heap_sound() -> None:
    """A corrupted heap ends the process with a signal, so the work is done in a child."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / "narrow_strides.py"],
        env={"ONEDNN_MAX_CPU_ISA": "AVX2"} | dict(os.environ),  # where the heap would be corrupted
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
