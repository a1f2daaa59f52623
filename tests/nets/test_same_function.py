"""The networks compute what the published classes compute.

The expected logits were written down by the classes that made the checkpoints (RobustBench 1.1.1, torchvision
0.28, timm 1.0.30's tf_efficientnet_lite0), filled by `fill_` and given `images`.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ctta.nets.efficientnet_lite import EfficientNetLite0
from ctta.nets.resnet import ResNet50
from ctta.nets.resnext import CifarResNeXt
from ctta.nets.wide_resnet import WideResNet


def noise(count: int, seed: int) -> Tensor:
    """Numbers in [-1, 1) that look random and are the same everywhere: a quadratic residue sequence."""
    k = torch.arange(count, dtype=torch.int64)
    return (((k + 17 * seed + 1) ** 2 * 40503) % 65521).double() / 32760.5 - 1


def fill_(net: nn.Module) -> nn.Module:
    """Fill the tensors in their order, convolutions and heads at He's scale."""
    state = net.state_dict()
    names = [name for name in state if state[name].is_floating_point()]
    for seed, name in enumerate(names):
        value = state[name]
        wave = noise(value.numel(), seed).reshape(value.shape)
        if value.dim() > 1:
            wave = wave * math.sqrt(6 / value[0].numel())
        elif name.endswith(("running_var", "weight")):
            wave = 0.7 + 0.3 * wave
        value.copy_(wave)
    return net.eval()


def images(size: int) -> Tensor:
    return 0.5 + 0.5 * noise(2 * 3 * size * size, 0).float().reshape(2, 3, size, size)


EXPECTED = {
    "WRN-10-2": [
        [2.60181, -1.0696, 2.25454, -1.12556],
        [2.33562, -1.03473, 2.32732, -1.11493],
    ],
    "ResNeXt-11 4x32": [
        [11.1987, 3.77216, -1.94442, -4.74762],
        [11.0835, 3.74531, -1.78533, -4.66567],
    ],
    "ResNet-50": [
        [31.0452, 8.87672, -21.7811, 16.5773],
        [31.3524, 9.10291, -20.3833, 16.2913],
    ],
    "EfficientNet-Lite0, odd size": [
        [-1.49212, 1.14845, -0.0217946, 3.88594],
        [-1.59335, 1.23527, -0.0152623, 3.76235],
    ],
}


NETWORKS = {
    "WRN-10-2": (lambda: WideResNet(10, 2, 10), 32),
    "ResNeXt-11 4x32": (lambda: CifarResNeXt(11, 100), 32),
    "ResNet-50": (lambda: ResNet50(1000), 64),
    "EfficientNet-Lite0, odd size": (lambda: EfficientNetLite0(1000), 97),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_are_those_of_the_published_class(name: str) -> None:
    make, size = NETWORKS[name]
    with torch.no_grad():
        logits = fill_(make())(images(size))
    torch.testing.assert_close(logits[:, :4], torch.tensor(EXPECTED[name]), rtol=1e-4, atol=1e-5)
