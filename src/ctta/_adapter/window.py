"""A sliding window over the stream, so that batches of one image can share their statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ctta.errors import ImageShape


class Window:
    """The last images of a stream, and how many of them the method has not learnt from yet.

    Args:
        size: How many images to keep.

    Example:
        >>> window = Window(2)
        >>> window.push(torch.zeros(1, 3, 4, 4))[1], window.push(torch.ones(1, 3, 4, 4))[1]
        (False, True)
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.images: Tensor | None = None
        self.fresh = 0

    def fits(self, x: Tensor) -> bool:
        """Return whether the images have the size of those in the window.

        Args:
            x: Images (N, C, H, W).
        """
        return self.images is None or self.images.shape[1:] == x.shape[1:]

    def seen_with(self, x: Tensor) -> Tensor:
        """Return what the window would hold with these images added as its last rows.

        Args:
            x: New images (N, C, H, W).
        """
        if not self.fits(x):
            assert self.images is not None
            raise ImageShape(
                f"Images in a window must have one size; it holds {tuple(self.images.shape[1:])} and got "
                f"{tuple(x.shape[1:])}. Resize them, or reset() the adapter."
            )
        if self.images is None:
            return x
        # Images from a checkpoint are contiguous; in another layout the same images may round differently.
        dense = x.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if dense else torch.contiguous_format
        return torch.cat([self.images.contiguous(memory_format=layout), x])[-max(self.size, len(x)) :]

    def push(self, x: Tensor) -> tuple[Tensor, bool]:
        """Add images.

        Args:
            x: New images (N, C, H, W).

        Returns:
            The images in the window, and whether all of them are new since the method last learnt: it is then time to
            learn.
        """
        self.images = self.seen_with(x).clone()
        self.fresh += len(x)
        all_new = self.fresh >= self.size
        if all_new:
            self.fresh = 0
        return self.images, all_new

    def clear(self) -> None:
        """Remove all images."""
        self.images = None
        self.fresh = 0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep."""
        return {"images": self.images, "fresh": self.fresh}

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state.

        Args:
            state: What ``state`` returned.
        """
        self.images = state["images"]
        self.fresh = state["fresh"]
