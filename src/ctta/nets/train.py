"""Train a small source model reproducibly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from ctta._adapter.layout import safe_layout


@dataclass(frozen=True)
class Training:
    """Training settings: SGD with a one-cycle cosine schedule, on randomly shifted images.

    Args:
        passes: Passes over the training images.
        batch_size: Images per step.
        lr: The highest learning rate.
        weight_decay: Weight decay.
        shift: Largest shift in either direction, in pixels.
        seed: Seed of the weights, the order of the images and the shifts.
    """

    passes: int = 40
    batch_size: int = 64
    lr: float = 0.1
    weight_decay: float = 5e-4
    shift: int = 2
    seed: int = 0


def train(
    build: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    how: Training,
    *,
    progress: Callable[[int, float], None] | None = None,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """Build a model and train it.

    Random numbers are drawn on the CPU, and the global generator is restored. With one thread, the same machine gives
    the same weights bit for bit.

    Args:
        build: Builds the model.
        x: Images (N, C, H, W) in [0, 1].
        y: Labels (N,).
        how: Training settings.
        progress: Called after every pass with its number and mean loss.
        device: Where to train.

    Returns:
        The model in eval mode, on `device`.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(how.seed)
        model = build().train()
        layout = safe_layout(model)
        model.to(device, memory_format=layout)  # type: ignore[call-overload]
        generator = torch.Generator().manual_seed(how.seed)
        optimizer = torch.optim.SGD(
            model.parameters(), how.lr, momentum=0.9, nesterov=True, weight_decay=how.weight_decay
        )
        steps = -(-len(x) // how.batch_size)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, how.lr, total_steps=how.passes * steps)
        for number in range(1, how.passes + 1):
            total = 0.0
            for part in torch.split(torch.randperm(len(x), generator=generator), how.batch_size):
                images = shifted(x[part], how.shift, generator).to(device, memory_format=layout)
                loss = cross_entropy(model(images), y[part].to(device))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                total += loss.item() * len(part)
            if progress is not None:
                progress(number, total / len(x))
    return model.eval()


def shifted(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Shift every image at random, extending its edge pixels.

    Args:
        x: Images (N, C, H, W).
        most: Largest shift in either direction, in pixels.
        generator: Source of random numbers.
    """
    if most == 0:
        return x
    n, _, height, width = x.shape
    moves = torch.randint(2 * most + 1, (2, n, 1), generator=generator)
    rows = (moves[0] + torch.arange(height)).unsqueeze(2)  # (N, H, 1)
    columns = (moves[1] + torch.arange(width)).unsqueeze(1)  # (N, 1, W)
    padded = pad(x, (most,) * 4, mode="replicate").permute(0, 2, 3, 1)
    return padded[torch.arange(n).view(n, 1, 1), rows, columns].permute(0, 3, 1, 2)


@torch.no_grad()
def error(model: nn.Module, x: Tensor, y: Tensor, *, batch_size: int = 256) -> float:
    """Compute the error of a model in percent.

    Args:
        model: A model in eval mode.
        x: Images (N, C, H, W).
        y: Labels (N,).
        batch_size: Images per forward pass.
    """
    incorrect = 0
    device = next((p.device for p in model.parameters()), x.device)
    for part in torch.split(torch.arange(len(x)), batch_size):
        incorrect += int((model(x[part].to(device)).argmax(1) != y[part].to(device)).sum())
    return 100 * incorrect / len(x)
