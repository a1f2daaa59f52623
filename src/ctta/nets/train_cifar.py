"""Train a CIFAR source model on one CPU core: small crops first, full images later; resumable after every pass."""

from __future__ import annotations

import io
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from ctta._adapter.layout import fastest_layout
from ctta._system.files import write_atomically
from ctta.classifier import Classifier
from ctta.errors import BadData, ParameterError

Optimizer = Literal["sgd", "adamw"]
Progress = Callable[[int, int, float], None]  # number of the pass, percentage done, loss

#: Stands for the network of a state that does not describe it.
UNNAMED = "another network"


@dataclass(frozen=True)
class CifarTraining:
    """Training settings: a one-cycle schedule, on randomly cropped and mirrored images.

    Args:
        passes: Passes over the training images.
        small_passes: How many of these, from the start, use crops of `small` pixels, which halves the work.
        small: Side of the small crops, in pixels.
        padding: Padding of the full images before they are cropped, in pixels.
        batch_size: Images per step.
        optimizer: "sgd" (with Nesterov momentum 0.9) or "adamw".
        lr: The highest learning rate.
        warm_up: Share of all steps in which the learning rate rises.
        weight_decay: Weight decay.
        label_smoothing: Label smoothing.
        seed: Seed of the weights, the order of the images and the crops.
    """

    passes: int = 30
    small_passes: int = 18
    small: int = 24
    padding: int = 4
    batch_size: int = 128
    optimizer: Optimizer = "sgd"
    lr: float = 0.1
    warm_up: float = 0.15
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.small_passes <= self.passes or self.passes < 1:
            raise ParameterError(
                f"The 'small_passes' of a training must be in 0..passes. Got {self.small_passes} of {self.passes}."
            )
        if self.optimizer not in ("sgd", "adamw"):
            raise ParameterError(
                f"The 'optimizer' of a training must be 'sgd' or 'adamw'. Got {self.optimizer!r} instead."
            )

    def lr_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step: a linear rise, then half a cosine down to zero.

        Args:
            step: Number of the step, from 0.
            steps: Number of all steps.
        """
        done, rising = (step + 1) / steps, self.warm_up
        if done < rising:
            return self.lr * done / rising
        return self.lr * 0.5 * (1 + math.cos(math.pi * (done - rising) / (1 - rising)))

    def optimize(self, model: nn.Module) -> torch.optim.Optimizer:
        """Build the optimizer of a model's parameters.

        Args:
            model: The model.
        """
        if self.optimizer == "adamw":
            return torch.optim.AdamW(model.parameters(), self.lr, weight_decay=self.weight_decay)
        return torch.optim.SGD(model.parameters(), self.lr, momentum=0.9, nesterov=True, weight_decay=self.weight_decay)


def train_cifar(
    build: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    how: CifarTraining,
    *,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """Build a model and train it.

    Args:
        build: Builds the model, which must normalise its own input.
        x: Images (N, 3, 32, 32), uint8.
        y: Labels (N,).
        how: Training settings.
        resume: A file that holds the state after every pass. If it exists, training continues from there, and the
            result is the same as without an interruption.
        progress: Called after every step with the number of the pass, the percentage of it done and the loss.
        device: Where to train.

    Returns:
        The model in eval mode, on `device`.

    Raises:
        BadData: If the `resume` file is damaged.
        ParameterError: If the `resume` file belongs to a training with other settings, or of another network.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(how.seed)
        model = build().train()
        layout = fastest_layout(model)
        model.to(device, memory_format=layout)  # type: ignore[call-overload]
        optimizer = how.optimize(model)
        done = _load(Path(resume), model, optimizer, how) if resume is not None else 0
        for number in range(done, how.passes):
            _pass(model, layout, optimizer, x, y, how, number, progress)
            if resume is not None:
                _save(Path(resume), model, optimizer, how, number + 1)
    return model.eval()


def _pass(
    model: nn.Module,
    layout: torch.memory_format,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    how: CifarTraining,
    number: int,
    progress: Progress | None,
) -> None:
    # Every pass has its own generator, so that its state need not be saved to resume.
    generator = torch.Generator().manual_seed(how.seed * 10_000 + number)
    order = torch.randperm(len(x), generator=generator)
    parts = [order[i : i + how.batch_size] for i in range(0, len(x), how.batch_size)]
    side, padding = (how.small, 0) if number < how.small_passes else (x.shape[-1], how.padding)
    for i, part in enumerate(parts):
        for group in optimizer.param_groups:
            group["lr"] = how.lr_at(number * len(parts) + i, how.passes * len(parts))
        images = crops(x[part].float() / 255, side, padding, generator)
        device = next(model.parameters()).device
        images = images.to(device, memory_format=layout)
        loss = cross_entropy(model(images), y[part].to(device), label_smoothing=how.label_smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if progress is not None:
            progress(number + 1, 100 * (i + 1) // len(parts), loss.item())


def crops(x: Tensor, side: int, padding: int, generator: torch.Generator) -> Tensor:
    """Crop a random square from every image, and mirror it half the time.

    Args:
        x: Images (N, C, H, W).
        side: Side of the crops, in pixels.
        padding: Reflected border added before cropping, in pixels.
        generator: Source of random numbers.
    """
    n = len(x)
    padded = pad(x, (padding,) * 4, mode="reflect") if padding else x
    places = padded.shape[-1] - side + 1
    corner = torch.randint(places, (2, n, 1), generator=generator)
    rows = (corner[0] + torch.arange(side)).unsqueeze(2)  # (N, side, 1)
    columns = corner[1] + torch.arange(side)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns).unsqueeze(1)  # (N, 1, side)
    return padded.permute(0, 2, 3, 1)[torch.arange(n).view(n, 1, 1), rows, columns].permute(0, 3, 1, 2)


def _save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, how: CifarTraining, passes: int) -> None:
    state = {
        "network": _description(model),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "how": asdict(how),
        "passes": passes,
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())


def _load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, how: CifarTraining) -> int:
    if not path.exists():
        return 0
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        kept, passes = state["how"], int(state["passes"])
        shapes = {name: value.shape for name, value in state["model"].items()}
    except Exception as error:  # a damaged file can fail anywhere inside torch.load
        raise BadData(f"{path} is not the state of a training. Delete it to start again.") from error
    kept = asdict(CifarTraining()) | kept  # a state of an earlier version lacks the newer settings
    changed = [key for key, value in asdict(how).items() if kept[key] != value]
    if changed:
        raise ParameterError(
            f"{path} belongs to a training with another {', '.join(changed)}. Use the same options, or delete it."
        )
    # A state of an earlier version does not say which network it is of.
    ours, theirs = _description(model), state.get("network", UNNAMED)
    if theirs not in (ours, UNNAMED) or shapes != {name: value.shape for name, value in model.state_dict().items()}:
        raise ParameterError(
            f"{path} belongs to a training of {theirs}, not of {ours}. Use the same network, or delete it."
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return passes


def _description(model: nn.Module) -> str:
    """Describe a network by its class and its layers, such as "CifarResNet (78,042 parameters in 9 Conv2d, ...)"."""
    net = model.model if isinstance(model, Classifier) else model
    kinds = Counter(type(layer).__name__ for layer in net.modules() if list(layer.parameters(recurse=False)))
    layers = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{type(net).__name__} ({sum(p.numel() for p in net.parameters()):,} parameters in {layers})"
