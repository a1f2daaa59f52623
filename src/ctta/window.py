"""The sliding window that lets batches of one image share their statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ctta.errors import ImageShape


class Window:
    """The last ``size`` images of a stream, and how many of them have not been learnt from."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.images: Tensor | None = None
        self.fresh = 0

    def seen_with(self, x: Tensor) -> Tensor:
        """What the window would hold after these images; they are its last rows."""
        if self.images is not None and self.images.shape[1:] != x.shape[1:]:
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
        """Take in images; what is held now, and whether all of it is new, which is when the method learns."""
        self.images = self.seen_with(x).clone()
        self.fresh += len(x)
        all_new = self.fresh >= self.size
        if all_new:
            self.fresh = 0
        return self.images, all_new

    def clear(self) -> None:
        """Forget every image."""
        self.images, self.fresh = None, 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"images": self.images, "fresh": self.fresh}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what state() gave."""
        self.images, self.fresh = state["images"], state["fresh"]
