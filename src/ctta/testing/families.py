"""Tiny classifiers that keep state in unusual ways, as models of other libraries do.

They take the same images as ``ctta.testing.models``. Use one as ``check_adapter(MyMethod, model=own_buffers)``, or
train it first: ``model=partial(trained, own_buffers)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ctta.testing.models import CLASSES, SIDE, centred, seeded

_DIM = 16
_PATCH = 4


class Stem(nn.Sequential):
    """Two convolutions with batch norm; the output has 16 channels of 4x4."""

    def __init__(self) -> None:
        first = nn.Conv2d(3, _DIM, 3, 2, 1, bias=False)
        second = nn.Conv2d(_DIM, _DIM, 3, 2, 1, bias=False)
        super().__init__(first, nn.BatchNorm2d(_DIM), nn.ReLU(), second, nn.BatchNorm2d(_DIM), nn.ReLU())


class IndexedNet(nn.Module):
    """Adds a relative position bias, looked up through a non-persistent index buffer as in Swin."""

    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.head = nn.Linear(_DIM, CLASSES)
        side = torch.arange(SIDE // 4)
        self.bias = nn.Parameter(0.1 * torch.randn(_DIM, 2 * len(side) - 1))
        self.register_buffer("index", side[:, None] - side[None, :] + len(side) - 1, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10).

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        logits: Tensor = self.head((self.stem(centred(x)) + self.looked_up()).relu().mean((2, 3)))
        return logits

    def looked_up(self) -> Tensor:
        """The bias of every position (16, 4, 4)."""
        return self.bias[:, self.index]


class AliasedNet(nn.Module):
    """Registers its stem under two names and shares a weight between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.features = self.stem
        self.first = nn.Linear(_DIM, _DIM)
        self.second = nn.Linear(_DIM, _DIM)
        self.second.weight = self.first.weight
        self.norm = nn.LayerNorm(_DIM)
        self.head = nn.Linear(_DIM, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10).

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        g = self.features(centred(x)).mean((2, 3))
        logits: Tensor = self.head(self.norm(g + self.second(self.first(g).relu())))
        return logits


class MixedNet(nn.Module):
    """Keeps linear layers in bfloat16 and norms and head in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * _PATCH**2, _DIM, dtype=torch.bfloat16)
        self.norm1 = nn.BatchNorm1d(_DIM)
        self.norm2 = nn.LayerNorm(_DIM)
        self.mix = nn.Linear(_DIM, _DIM, dtype=torch.bfloat16)
        self.head = nn.Linear(_DIM, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10) in the dtype of the head.

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        patches = F.unfold(centred(x.to(self.embed.weight.dtype)), _PATCH, stride=_PATCH).mT  # (N, T, 48)
        tokens = self.norm1(self.embed(patches).to(self.norm1.weight.dtype).mT).mT.relu()
        mixed = self.mix(tokens.to(self.mix.weight.dtype)).to(tokens.dtype)
        logits: Tensor = self.head(self.norm2(tokens + mixed).relu().mean(1))
        return logits


class CountingNet(nn.Module):
    """Updates two buffers in every forward pass, even in eval mode: a counter and a moving average it subtracts."""

    calls: Tensor
    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.head = nn.Linear(_DIM, CLASSES)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10), which depend on the images of earlier calls.

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        x = centred(x)
        with torch.no_grad():
            self.calls += 1
            self.average.lerp_(x.mean((0, 2, 3), keepdim=True), 0.1)
        logits: Tensor = self.head(self.stem(x - self.average).mean((2, 3)))
        return logits


class ExtraStateNet(nn.Module):
    """Saves a number, a list and a count of its forward passes through get_extra_state, next to its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.head = nn.Linear(_DIM, CLASSES)
        self.gain = 1.5
        self.names = [f"class {label}" for label in range(CLASSES)]
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10).

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        self.calls += 1
        logits: Tensor = self.head(self.gain * self.stem(centred(x)).mean((2, 3)))
        return logits

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state that is not a tensor."""
        return {"gain": self.gain, "names": list(self.names), "calls": self.calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load what get_extra_state returned.

        Args:
            state: What get_extra_state returned.
        """
        self.gain, self.names, self.calls = state["gain"], list(state["names"]), state["calls"]


class _Gated(nn.Module):
    """A block that scales what it adds by a buffer, which another block may share."""

    scale: Tensor

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_DIM)
        self.mix = nn.Linear(_DIM, _DIM)
        self.register_buffer("scale", scale)

    def forward(self, g: Tensor) -> Tensor:
        gated: Tensor = g + self.scale * self.mix(self.norm(g)).relu()
        return gated


class SharedBufferNet(nn.Module):
    """Registers one buffer in two blocks; it is an expanded scalar, as a constant of several channels may be."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        scale = torch.tensor(0.5).expand(_DIM)
        self.first = _Gated(scale)
        self.second = _Gated(scale)
        self.head = nn.Linear(_DIM, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10).

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        logits: Tensor = self.head(self.second(self.first(self.stem(centred(x)).mean((2, 3)))))
        return logits


class GrowingNet(nn.Module):
    """Creates two buffers in its first forward pass in eval mode and resizes a third; one is not persistent."""

    average: Tensor | None
    latest: Tensor | None
    queue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.head = nn.Linear(_DIM, CLASSES)
        self.register_buffer("average", None)
        self.register_buffer("latest", None, persistent=False)
        self.register_buffer("queue", torch.zeros(0, _DIM))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10), which depend on the images of earlier calls.

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        g = self.stem(centred(x)).mean((2, 3))
        if not self.training:
            g = g - 0.1 * self.remembered(g.detach().mean(0))
        logits: Tensor = self.head(g)
        return logits

    def remembered(self, mean: Tensor) -> Tensor:
        """Update the buffers by the mean features of a batch (16,), and return their sum.

        Args:
            mean: The mean features of the batch.
        """
        self.latest = mean if self.latest is None else self.latest.lerp(mean, 0.5)
        self.average = mean if self.average is None else self.average.lerp(mean, 0.1)
        self.queue = torch.cat([self.queue, mean[None]])[-12:]
        return self.average + self.latest + self.queue.mean(0)


class CachingNet(IndexedNet):
    """Looks its biases up once in eval mode and keeps them until the next ``train(True)``, as LeViT does."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, Tensor] = {}

    def train(self, mode: bool = True) -> Self:
        """Set the mode; training mode clears the cached biases.

        Args:
            mode: True for training mode, False for eval mode.
        """
        if mode:
            self.cache = {}
        return super().train(mode)

    def looked_up(self) -> Tensor:
        """The bias of every position, from the cache in eval mode."""
        if self.training:
            return super().looked_up()
        if "bias" not in self.cache:
            self.cache["bias"] = super().looked_up()
        return self.cache["bias"]


def non_persistent_buffers() -> nn.Module:
    """Build a network with a buffer that is not in its state_dict."""
    return seeded(IndexedNet)


def shared_modules() -> nn.Module:
    """Build a network with a module under two names and two layers that share a weight."""
    return seeded(AliasedNet)


def mixed_precision() -> nn.Module:
    """Build a network with parameters in bfloat16 and in float32."""
    return seeded(MixedNet)


def own_buffers() -> nn.Module:
    """Build a network that updates its own buffers in every forward pass."""
    return seeded(CountingNet)


def shared_buffers() -> nn.Module:
    """Build a network with an expanded buffer that two modules share."""
    return seeded(SharedBufferNet)


def grown_buffers() -> nn.Module:
    """Build a network that creates and resizes buffers in its forward pass."""
    return seeded(GrowingNet)


def cached_tensors() -> nn.Module:
    """Build a network that keeps a tensor computed from its weights in eval mode."""
    return seeded(CachingNet)


def extra_state() -> nn.Module:
    """Build a network with state that is not a tensor."""
    return seeded(ExtraStateNet)


FAMILIES: Mapping[str, Callable[[], nn.Module]] = {
    build.__name__: build
    for build in (
        non_persistent_buffers,
        shared_modules,
        mixed_precision,
        own_buffers,
        cached_tensors,
        extra_state,
        shared_buffers,
        grown_buffers,
    )
}
