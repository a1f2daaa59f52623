"""Memories of test images with a fixed number of places, which are part of an adapter's state."""

from __future__ import annotations

import torch
from torch import Tensor

from ctta._adapter.state import OptionalState
from ctta.errors import ImageShape


class ImageMemory(OptionalState):
    """Up to ``size`` images with a predicted class each. The places are allocated with the first image.

    Args:
        size: The maximum number of images to hold.
    """

    images: Tensor | None
    label: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", None)
        self.register_buffer("label", torch.full((size,), -1))  # -1: an empty place

    def __len__(self) -> int:
        """Return how many images are held."""
        return int((self.label >= 0).sum())

    def refuse_other_size(self, x: Tensor, method: str) -> None:
        """Raise ImageShape for images whose size differs from that of the images held.

        Args:
            x: Images (N, C, H, W).
            method: The name of the method, for the message.
        """
        if self.images is not None and self.images.shape[1:] != x.shape[1:]:
            raise ImageShape(
                f"{method} learns from a memory of images of one size; it holds {tuple(self.images.shape[1:])} and "
                f"got {tuple(x.shape[1:])}. Resize them, or reset() the adapter."
            )

    def put(self, places: Tensor, images: Tensor, labels: Tensor) -> None:
        """Store images in the given places, replacing what is there.

        Args:
            places: The places (M,).
            images: Images (M, C, H, W).
            labels: Their predicted classes (M,).
        """
        if self.images is None:
            self.images = images.new_zeros(self.size, *images.shape[1:])
        self.images[places], self.label[places] = images, labels


class EntropyBuffer(ImageMemory):
    """Confident images of OBAO: once the buffer is full, new images replace those with the highest entropy.

    Args:
        size: The maximum number of images to hold.
    """

    entropy: Tensor | None

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.register_buffer("entropy", None)

    def add(self, images: Tensor, labels: Tensor, entropy: Tensor) -> None:
        """Add images: first in free places, then over the highest stored entropies, even if the new ones are higher.

        Args:
            images: Images (M, C, H, W).
            labels: Their predicted classes (M,).
            entropy: The entropies of their predictions (M,). They are never recomputed.
        """
        if not len(images):
            return
        if self.entropy is None:
            self.entropy = entropy.new_zeros(self.size)
        held = len(self)
        free = torch.arange(held, self.size, device=labels.device)[: len(images)]
        self._store(free, images[: len(free)], labels[: len(free)], entropy[: len(free)])
        # Paper silent: if the new images alone overfill the buffer, the first are kept.
        rest = slice(len(free), len(free) + self.size)
        worst = self.entropy.argsort(descending=True)[: len(images[rest])]
        self._store(worst, images[rest], labels[rest], entropy[rest])

    def _store(self, places: Tensor, images: Tensor, labels: Tensor, entropy: Tensor) -> None:
        assert self.entropy is not None
        self.put(places, images, labels)
        self.entropy[places] = entropy
