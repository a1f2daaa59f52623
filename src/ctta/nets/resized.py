"""Resize images to the size a network was trained on."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import interpolate


class Resized(nn.Module):
    """Wraps a network to resize its input to a square; images that already have that size are not changed.

    Args:
        net: The network.
        size: Side of its input, in pixels.
    """

    def __init__(self, net: nn.Module, size: int) -> None:
        super().__init__()
        self.net = net
        self.size = size

    def forward(self, x: Tensor) -> Any:
        """Resize the images and apply the network.

        Args:
            x: Images (N, C, H, W) of any size.
        """
        if x.shape[-2:] != (self.size, self.size):
            x = interpolate(x, (self.size, self.size), mode="bilinear", antialias=True, align_corners=False)
        return self.net(x)

    def get_classifier(self) -> nn.Module | None:
        """Return the head that the network declares, as timm models do."""
        declared = getattr(self.net, "get_classifier", None)
        return declared() if callable(declared) else None
