"""The network, stream and stand-ins for randomness behind the conformance vectors (float64)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import ctta
from ctta.methods._parts.restore import RestoresRandomly

DATA = Path(__file__).parent / "data"


@cache
def vectors_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


def vectors() -> dict[str, np.ndarray]:
    return vectors_of(DATA / "vectors.npz")


def vector(name: str) -> Tensor:
    return torch.from_numpy(vectors()[name])


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.down = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (out + self.down(x)).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1, self.layer2 = Block(8, 8), Block(8, 12, 2)
        self.layer3, self.layer4 = Block(12, 16, 2), Block(16, 16)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def net() -> nn.Module:
    model = Net()
    model.load_state_dict({k[2:]: vector(k) for k in vectors() if k.startswith("w/")})
    return model.double()


def projector() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128)).double()
    model.load_state_dict({k[10:]: vector(k) for k in vectors() if k.startswith("projector/")})
    return model


def stream() -> Tensor:
    return vector("x").double()


def source_batches() -> list[tuple[Tensor, Tensor]]:
    x, y = vector("x_src").double(), vector("y_src")
    return list(zip(x.split(16), y.split(16), strict=True))


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    return x.flip(-1)


def four_views() -> Callable[[Tensor, torch.Generator], Tensor]:
    calls = count()

    def view(x: Tensor, generator: torch.Generator) -> Tensor:
        k = next(calls) % 4
        if k == 0:
            return x.flip(-1)
        if k == 1:
            return x.roll(1, -1)
        return x.roll(1, -2) if k == 2 else x.flip(-1).roll(1, -1)

    return view


class Masked(RestoresRandomly):
    """A method with the stochastic-restore masks of a case."""

    file = DATA / "vectors.npz"

    def __init__(self, case: str, **options: object) -> None:
        super().__init__(net(), views=8, view=four_views(), **options)  # type: ignore[call-arg]
        self.case, self.batches = case, count()

    def restore_randomly(self) -> None:
        self.batch = next(self.batches)
        super().restore_randomly()

    def chosen(self, parameter: Tensor) -> Tensor:
        name = next(n for n, p in self.student.model.named_parameters() if p is parameter)
        bits = np.unpackbits(vectors_of(self.file)[f"{self.case}/mask{self.batch}/{name}"])[: parameter.numel()]
        return torch.from_numpy(bits).nonzero().flatten()


class MaskedCoTTA(Masked, ctta.CoTTA):
    """CoTTA with the masks of a case."""
