"""A small vision transformer for 32 x 32 images, with layer norm only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

from ctta.errors import ParameterError

SIDE = 32  # of the images, in pixels
STEP = 8  # pixels from one token to the next


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017).

    Args:
        width: Size of a token.
        heads: Number of heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of every image.

        Args:
            x: Tokens (N, T, width).
        """
        n, tokens, width = x.shape
        split = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # each (N, heads, T, width / heads)
        mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width)
        out: Tensor = self.proj(mixed)
        return out


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and with a shortcut around it.

    Args:
        width: Size of a token.
        heads: Number of heads.
        hidden: Size of the perceptron's hidden layer.
    """

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """Add both residuals.

        Args:
            x: Tokens (N, T, width).
        """
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class CifarViT(nn.Module):
    """A pre-norm vision transformer; the head is `head`, on the mean of the tokens.

    Three 3 x 3 convolutions with max pooling make one token of every 8 x 8 pixels, as in the compact convolutional
    transformer of Hassani et al. (2021): with a plain patch embedding, a transformer of this size needs many times the
    passes over CIFAR-10. There is no norm in this stem, so every norm of the network is a layer norm.

    Args:
        depth: Number of blocks.
        num_classes: Number of classes.
        width: Size of a token.
        heads: Number of attention heads.
        hidden: Size of the hidden layer in a block's perceptron.
        stem: Channels of the first convolution; the second has twice as many.
    """

    def __init__(
        self, depth: int, num_classes: int, *, width: int = 128, heads: int = 4, hidden: int = 256, stem: int = 32
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ParameterError(f"The 'depth' parameter of CifarViT must be at least 1. Got {depth} instead.")
        if width % heads:
            raise ParameterError(
                f"The 'width' parameter of CifarViT must be a multiple of 'heads', {heads}. Got {width} instead."
            )
        self.patch_embed = nn.Sequential(
            nn.Conv2d(3, stem, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(stem, 2 * stem, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * stem, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.pos_embed = nn.Parameter(torch.empty(1, width, SIDE // STEP, SIDE // STEP))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for normalised images (N, 3, H, W).

        Args:
            x: Normalised images (N, 3, H, W), with sides that are multiples of 8.
        """
        x = self.patch_embed(x)
        tokens = self.blocks((x + self._place(x)).flatten(2).transpose(1, 2))
        logits: Tensor = self.head(self.norm(tokens).mean(1))
        return logits

    def _place(self, x: Tensor) -> Tensor:
        """Return the position embedding, stretched if the images are not of the usual size."""
        if x.shape[2:] == self.pos_embed.shape[2:]:
            return self.pos_embed
        return interpolate(self.pos_embed, x.shape[2:], mode="bilinear", align_corners=False)
