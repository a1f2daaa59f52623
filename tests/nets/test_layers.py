"""The few layers that torch does not have, each against a naive computation or the related layer of torch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ctta.errors import ParameterError
from ctta.nets.cifar_resnet import CifarResNet, PadShortcut
from ctta.nets.efficientnet_lite import SameConv2d
from ctta.nets.resnet import BottleneckResNet50, WeightNormLinear
from ctta.nets.resnext import CifarResNeXt
from ctta.nets.wide_resnet import WideResNet


def test_pad_shortcut_takes_every_second_pixel_and_puts_zeros_on_both_sides() -> None:
    x = torch.rand(2, 4, 6, 6)
    expected = torch.zeros(2, 8, 3, 3)
    for channel in range(4):
        for row in range(3):
            for column in range(3):
                expected[:, 2 + channel, row, column] = x[:, channel, 2 * row, 2 * column]
    assert torch.equal(PadShortcut(extra=4, stride=2)(x), expected)


@pytest.mark.parametrize("size", [(7, 7), (8, 8), (5, 12), (3, 1)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_same_padding_is_tensorflow_s(size: tuple[int, int], stride: int, kernel: int) -> None:
    layer = SameConv2d(1, 1, kernel, stride)
    x, weight = torch.rand(1, 1, *size), layer.weight[0, 0]
    # TensorFlow's definition: ceil(n / stride) outputs; the padding they need is split, the odd pixel at the end.
    outputs = [-(-n // stride) for n in size]
    before = [max((o - 1) * stride + kernel - n, 0) // 2 for o, n in zip(outputs, size, strict=True)]
    expected = torch.zeros(outputs)
    for i in range(outputs[0]):
        for j in range(outputs[1]):
            for a in range(kernel):
                for b in range(kernel):
                    row, column = i * stride + a - before[0], j * stride + b - before[1]
                    if 0 <= row < size[0] and 0 <= column < size[1]:
                        expected[i, j] += weight[a, b] * x[0, 0, row, column]
    torch.testing.assert_close(layer(x)[0, 0], expected)


def twins() -> tuple[WeightNormLinear, nn.Module]:
    torch.manual_seed(0)
    ours = WeightNormLinear(5, 3)
    theirs = parametrizations.weight_norm(nn.Linear(5, 3), dim=0)
    with torch.no_grad():
        ours.weight_g.mul_(torch.tensor([[0.5], [2.0], [3.0]]))
    # torch's layer takes the older names on load.
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def test_weight_norm_agrees_with_torch_forward_and_backward() -> None:
    ours, theirs = twins()
    x = torch.randn(4, 5)
    torch.testing.assert_close(ours(x), theirs(x))
    for layer in (ours, theirs):
        layer(x).square().sum().backward()
    lengths, directions = (
        theirs.get_parameter("parametrizations.weight.original0"),
        theirs.get_parameter("parametrizations.weight.original1"),
    )
    torch.testing.assert_close(ours.weight_g.grad, lengths.grad)
    torch.testing.assert_close(ours.weight_v.grad, directions.grad)


def test_weight_norm_starts_as_a_plain_linear_layer_and_has_the_published_names() -> None:
    layer = WeightNormLinear(5, 3)
    assert isinstance(layer, nn.Linear)
    assert [name for name, _ in layer.named_parameters()] == ["weight_v", "weight_g", "bias"]
    torch.testing.assert_close(layer.weight, layer.weight_v)
    torch.testing.assert_close(layer.weight.norm(dim=1, keepdim=True), layer.weight_g)


def test_weight_norm_can_be_copied_and_pickled_after_a_forward_pass() -> None:
    layer, _ = twins()
    x = torch.randn(4, 5)
    y: Tensor = layer(x)
    y.sum().backward()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), y)
        with torch.no_grad():
            other.weight_g.zero_()
        assert torch.equal(layer(x), y)


def test_the_domainnet_head_sees_the_normalised_bottleneck() -> None:
    torch.manual_seed(0)
    net = BottleneckResNet50(num_classes=7, bottleneck=6).train()
    seen: list[Tensor] = []
    net.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        assert net(torch.rand(4, 3, 32, 32)).shape == (4, 7)
    torch.testing.assert_close(seen[0].mean(0), torch.zeros(6), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shortcut", ["pad", "conv"])
def test_the_smallest_cifar_resnet_learns_from_every_parameter(shortcut: str) -> None:
    torch.manual_seed(0)
    net = CifarResNet(8, 10, shortcut=shortcut, width=8)  # type: ignore[arg-type]
    logits = net(torch.randn(4, 3, 16, 16))
    assert logits.shape == (4, 10)
    logits.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CifarResNet(18, 10), "The 'depth' parameter of CifarResNet must be 6n + 2: .* Got 18 instead"),
        (lambda: CifarResNet(2, 10), "Got 2 instead"),
        (lambda: CifarResNet(8, 10, shortcut="zero"), "must be 'pad' or 'conv'. Got 'zero' instead"),  # type: ignore[arg-type]
        (lambda: WideResNet(27), "must be 6n [+] 4"),
        (lambda: CifarResNeXt(30), "must be 9n [+] 2"),
    ],
)
def test_impossible_depths_are_refused(make: object, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence.replace("6n + 2", "6n [+] 2")):
        make()  # type: ignore[operator]


@torch.no_grad()
def test_group_norms_normalise_four_channels_of_one_image_together() -> None:
    net = CifarResNet(8, 10, shortcut="conv", norm="group").double()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    maps = net.conv1(x)
    expected = torch.empty_like(maps)
    for image in range(3):
        for group in range(4):
            part = maps[image, 4 * group : 4 * group + 4]
            expected[image, 4 * group : 4 * group + 4] = (part - part.mean()) / (part.var(correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(net.bn1(maps), expected)
    torch.testing.assert_close(net.train()(x)[:1], net(x[:1]))  # no statistics of the batch


def test_the_norm_of_a_resnet_does_not_change_the_names_of_its_parameters() -> None:
    group, batch = (CifarResNet(20, 10, shortcut="conv", norm=norm) for norm in ("group", "batch"))
    assert [*dict(group.named_parameters())] == [*dict(batch.named_parameters())]
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in group.modules())
    with pytest.raises(ParameterError, match="'norm' parameter of CifarResNet"):
        CifarResNet(20, 10, norm="layer")  # type: ignore[arg-type]
