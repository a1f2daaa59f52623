"""A synthetic dataset that a tiny network learns in a second, and streams drawn from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta._adapter.layout import safe_layout
from ctta._system.module_copy import deepcopy_module
from ctta.testing.models import CLASSES, SIDE, bn_cnn

_STEPS = 100
_BATCH = 32


def labelled_images(count: int, *, seed: int, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Generate images (count, 3, 16, 16) in [0, 1] and labels: one smooth pattern per class, shifted and noisy.

    Args:
        count: Number of images.
        seed: Seed of labels, shifts and noise; the patterns are always the same.
        noise: Standard deviation of the noise.
    """
    x, y = _labelled_images(count, seed, noise)
    return x.clone(), y.clone()


@lru_cache(maxsize=16)
def _labelled_images(count: int, seed: int, noise: float) -> tuple[Tensor, Tensor]:
    pattern = torch.rand(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    pattern = F.interpolate(pattern, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    generator = torch.Generator().manual_seed(1 + seed)
    y = torch.randint(CLASSES, (count,), generator=generator)
    shifts = torch.randint(-2, 3, (count, 2), generator=generator).tolist()
    x = torch.stack([pattern[c].roll(s, (1, 2)) for c, s in zip(y.tolist(), shifts, strict=True)])
    x = 0.25 + 0.5 * x + noise * torch.randn(x.shape, generator=generator)
    return x.clamp(0, 1), y


def drifting_images(count: int) -> Tensor:
    """Generate images that become darker, lower in contrast and noisier along the stream.

    Args:
        count: Number of images.
    """
    x, _ = labelled_images(count, seed=1, noise=0.05)
    far = torch.linspace(0.2, 1, count).view(-1, 1, 1, 1)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    return (x * (1 - 0.4 * far) + 0.12 * far * noise).clamp(0, 1)


def fit(model: nn.Module) -> nn.Module:
    """Train a model in place on the synthetic dataset.

    Args:
        model: Takes images (N, 3, 16, 16) and returns logits (N, 10).

    Returns:
        The model in eval mode.
    """
    model.train()
    model.to(memory_format=safe_layout(model))  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    x, y = labelled_images(_STEPS * _BATCH, seed=0)
    for images, labels in zip(torch.split(x, _BATCH), torch.split(y, _BATCH), strict=True):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def trained(build: Callable[[], nn.Module] = bn_cnn) -> nn.Module:
    """Return a tiny network trained on the synthetic dataset; each is trained once per process.

    Args:
        build: Builds the network.
    """
    return deepcopy_module(_trained(build))


@cache
def _trained(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.enable_grad():
        return fit(build())
