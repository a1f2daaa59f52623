"""Adapt and train a network with strided 1x1 convolutions of few channels, from images in channels_last.

In channels_last its backward pass corrupts the heap on some CPUs, which ends the process: run it in a child process.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ctta
from ctta.methods.eata import fisher_from_source
from ctta.nets.train import Training, train
from ctta.nets.train_cifar import CifarTraining, train_cifar
from ctta.testing.task import fit


class NarrowNet(nn.Module):
    """Strided 1x1 convolutions from three, four and six channels, as the shortcuts of a slim ResNet are."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 4), (4, 6), (6, 16)):
            layers += [nn.Conv2d(before, after, 1, stride=2, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body(x).mean((2, 3)))
        return logits


class Matrix(nn.Module):
    """The same with a weight that is a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight[:, :, None, None], stride=2)


class OfLinear(nn.Module):
    """The same with the weight of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.linear.weight.view(16, 4, 1, 1), stride=2)


class OwnStride(nn.Conv2d):
    """A convolution that announces a stride of one and uses two."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, stride=2)


HIDDEN: dict[str, Callable[[], nn.Module]] = {
    "matrix": Matrix,
    "linear": OfLinear,
    "subclass": lambda: OwnStride(4, 16, 1),
}


def hiding(form: str) -> nn.Module:
    """Build a network whose strided 1x1 convolution cannot be read from the attributes of a layer."""
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), HIDDEN[form](), nn.BatchNorm2d(16), nn.ReLU(), *pooled)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.rand(16, 32, 32, 3).permute(0, 3, 1, 2)  # as image files are read: channels_last
    y = torch.arange(16) % 10
    for model in (NarrowNet(), NarrowNet().to(memory_format=torch.channels_last)):  # type: ignore[call-overload]
        fisher = fisher_from_source(model, [x])
        for adapter in (
            ctta.Tent(model),
            ctta.EATA(model, fisher=fisher),
            ctta.DMSE(model),
            ctta.RMT(model, source=[(x, y)], lambda_src=1.0),
        ):
            for _ in range(4):
                assert adapter(x).isfinite().all()
        fit(model)
    for form in HIDDEN:
        adapter = ctta.DMSE(hiding(form))
        for _ in range(8):
            assert adapter(x).isfinite().all()
            _ = [torch.rand(37 * size + 1) for size in range(50)]  # to be allocated beside a corrupted block
    train(NarrowNet, x, y, Training(passes=4, batch_size=8))
    train_cifar(NarrowNet, (255 * x).to(torch.uint8), y, CifarTraining(passes=4, small_passes=2, batch_size=8))


if __name__ == "__main__":
    main()
