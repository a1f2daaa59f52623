"""Tiny classifiers, one per norm family: 10 classes, images 3x16x16, fewer than 20,000 parameters each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 10
SIDE = 16

_WIDTHS = (3, 12, 24, 32)
_DIM = 24
_PATCH = 4


class ConvNet(nn.Module):
    """Three 3x3 convolutions, each followed by a norm, and a linear head on the mean over positions.

    Args:
        norm: Builds a norm layer for a number of channels.
    """

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, width in pairwise(_WIDTHS):
            stride = 1 if before == _WIDTHS[0] else 2
            layers += [nn.Conv2d(before, width, 3, stride, padding=1, bias=False), norm(width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(_WIDTHS[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10).

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        logits: Tensor = self.head(self.body(centred(x)).mean(dim=(2, 3)))
        return logits


class Block(nn.Module):
    """A transformer block with layer norm before attention and before the MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(_DIM)
        self.norm2 = nn.LayerNorm(_DIM)
        self.qkv = nn.Linear(_DIM, 3 * _DIM)
        self.out = nn.Linear(_DIM, _DIM)
        self.mlp = nn.Sequential(nn.Linear(_DIM, 2 * _DIM), nn.GELU(), nn.Linear(2 * _DIM, _DIM))

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens (N, T, 24).

        Args:
            x: Tokens (N, T, 24).
        """
        n, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, tokens, 3, 3, -1).permute(2, 0, 3, 1, 4)  # (N, heads, T, 8) each
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, -1)
        x = x + self.out(mixed)
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class TokenNet(nn.Module):
    """A vision transformer with two blocks and layer norm only."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, _DIM, _PATCH, _PATCH)
        self.positions = nn.Parameter(0.02 * torch.randn(1, (SIDE // _PATCH) ** 2, _DIM))
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(_DIM)
        self.head = nn.Linear(_DIM, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10).

        Args:
            x: Images (N, 3, 16, 16) in [0, 1].
        """
        tokens = self.patches(centred(x)).flatten(2).mT + self.positions  # (N, T, 24)
        logits: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return logits


def bn_cnn() -> nn.Module:
    """Build a convolutional network with batch norm."""
    return seeded(partial(ConvNet, nn.BatchNorm2d))


def gn_cnn() -> nn.Module:
    """Build a convolutional network with group norm."""
    return seeded(partial(ConvNet, partial(nn.GroupNorm, 4)))


def ln_vit() -> nn.Module:
    """Build a vision transformer, which has layer norm only."""
    return seeded(TokenNet)


def plain_cnn() -> nn.Module:
    """Build a convolutional network without norm layers."""
    return seeded(partial(ConvNet, _no_norm))


def centred(x: Tensor) -> Tensor:
    """Move images in [0, 1] to [-2, 2].

    Args:
        x: Images.
    """
    return 4 * (x - 0.5)


def _no_norm(width: int) -> nn.Module:
    return nn.Identity()


def seeded(build: Callable[[], Any]) -> nn.Module:
    """Build a model in eval mode with the same random weights every time.

    Args:
        build: Returns a new model.
    """
    # Default initialisation draws from the global generator: seed it, and restore it afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = build()
    return model.eval()
