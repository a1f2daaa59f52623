"""A network that is given images of the size it was trained on."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import interpolate


class Resized(nn.Module):
    """Resizes images to a square before a network sees them; images of that size pass unchanged.

    Args:
        net: The network.
        size: The side of the images it takes, in pixels.
    """

    def __init__(self, net: nn.Module, size: int) -> None:
        super().__init__()
        self.net = net
        self.size = size

    def forward(self, x: Tensor) -> Any:
        """Return what the network returns for the resized images."""
        if x.shape[-2:] != (self.size, self.size):
            x = interpolate(x, (self.size, self.size), mode="bilinear", antialias=True, align_corners=False)
        return self.net(x)

    def get_classifier(self) -> nn.Module | None:
        """Return the head that the network declares, as models of timm do."""
        declared = getattr(self.net, "get_classifier", None)
        return declared() if callable(declared) else None
